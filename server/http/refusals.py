"""Errors that end an HTTP request before anything is executed."""

from datastore.errors import DomainError


class Refused(Exception):
    """A refused request. The response has this status and error, and additionally `headers`."""

    def __init__(self, status: int, error: DomainError, **headers: str) -> None:
        super().__init__(str(error))
        self.status = status
        self.error = error
        self.headers = tuple((name.encode(), value.encode()) for name, value in headers.items())


class ClientGone(Exception):
    """The client has disconnected: no response can be sent."""
