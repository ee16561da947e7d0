"""How an HTTP request ends before anything is executed."""

from datastore.errors import DomainError


class Refused(Exception):
    """The request is answered with this status and error; nothing was executed. `headers` go with the answer."""

    def __init__(self, status: int, error: DomainError, **headers: str) -> None:
        super().__init__(str(error))
        self.status = status
        self.error = error
        self.headers = tuple((name.encode(), value.encode()) for name, value in headers.items())


class ClientGone(Exception):
    """Nobody is left to answer."""
