"""Admission of one upload to `/media`: its token, its charge, and the file that it is written to."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime
from math import ceil
from typing import Any

from datastore.errors import BadUserInput, Conflict, DomainError, Forbidden, NotFound, Throttled
from datastore.model.identity import Identity, Role
from datastore.objects import INCOMING
from datastore.objects.ledger import IncomingLimits
from datastore.objects.local import LocalObjects
from datastore.objects.partial_files import IncomingFile, UploadGone
from datastore.photos.reservations import no_reservation, reservation_for, uploader_of
from datastore.session.store import Store
from server.admission.budgets import CallerBudgets
from server.admission.callers import Caller
from server.http.responses import Refused
from server.media.multipart import MAX_FORM_OVERHEAD, Opening

# The cost of an upload in read units: the read of its reservation, and one unit for each block of bytes.
RESERVATION_UNITS, BYTES_PER_UNIT = 1.0, 65_536


@dataclass(frozen=True, slots=True)
class UploadAdmission:
    """The admission of uploads in the process."""

    #: Opens a store with which the reservation of a file is read.
    open_store: Callable[[], Store]
    budgets: CallerBudgets
    limits: IncomingLimits
    #: The keys of the files that are being received.
    arriving: set[str] = field(default_factory=set)


class Upload:
    """The file of one form. Token and reservation are checked before it is received, and its size while it arrives.

    `length` is the Content-Length of the form, `address` the address of the client. Cleanups are pushed on the `stack`.
    """

    def __init__(
        self,
        objects: LocalObjects,
        admission: UploadAdmission,
        now: datetime,
        length: int,
        address: str,
        stack: AsyncExitStack,
    ) -> None:
        self._objects = objects
        self._admission = admission
        self._now = now
        self._length = length
        self._address = address
        self._stack = stack
        self._file: IncomingFile | None = None
        self._remaining = 0
        self._max_bytes = 0

    async def begin(self, opening: Opening) -> Callable[[bytes], None]:
        """Charge the upload, and return the function that writes the file.

        Raises:
            Refused: The type or size differs from the token.
            DomainError: The token is invalid, the reservation has ended, the budget or the quota of the uploader is
                exhausted, or the file cannot be stored.
        """
        token = self._token(opening)
        self._max_bytes = self._remaining = token["most"]
        if self._length > self._max_bytes + MAX_FORM_OVERHEAD:
            raise too_large(self._max_bytes)
        self._claim_key(token["key"])
        caller, units = self._uploader(token), float(ceil(self._length / BYTES_PER_UNIT))
        if caller is not None:
            await self._admission.budgets.charge(caller, RESERVATION_UNITS + units)
        try:
            self._file = await self._open(token)
        except BaseException:
            if caller is not None:  # nothing of the file was stored
                await self._admission.budgets.settle(caller, -units)
            raise
        return self._write

    def _token(self, opening: Opening) -> dict[str, Any]:
        token = self._objects.open_token(opening.token, b"upload", self._now)
        if token is None or not token["key"].startswith(INCOMING):
            raise Forbidden("The token is invalid or has expired.")
        if opening.content_type.lower() != token["type"]:
            raise Refused(415, BadUserInput(f"The file must be sent as Content-Type: {token['type']}."))
        return token

    def _uploader(self, token: dict[str, Any]) -> Caller | None:
        """Return the caller whose budget is charged; None for a token of an older version, which does not name one."""
        uploader = uploader_of(token)
        return None if uploader is None else Caller(Identity(uploader[0], Role(uploader[1])), self._address)

    def _claim_key(self, key: str) -> None:
        """Refuse a concurrent upload of the same file: otherwise its token could fill the disk with partial files."""
        arriving = self._admission.arriving
        if key in arriving:
            raise Conflict("This file is being uploaded; try again when that has ended.", retryable=True)
        arriving.add(key)
        self._stack.callback(arriving.discard, key)

    async def _open(self, token: dict[str, Any]) -> IncomingFile:
        reservation = await reservation_for(token, self._admission.open_store(), self._now)
        return await self._stack.enter_async_context(
            self._objects.incoming_file(
                token["key"],
                owner=reservation.email,
                max_bytes=min(self._length, self._max_bytes),
                seconds=(reservation.expires_at - self._now).total_seconds(),
                limits=self._admission.limits,
            )
        )

    def _write(self, content: bytes) -> None:
        # Without a thread: to write a piece to a local disk takes no longer than the handover to a thread.
        self._remaining -= len(content)
        if self._remaining < 0:
            raise too_large(self._max_bytes)
        assert self._file is not None
        self._file.write(content)

    async def keep(self) -> None:
        """Store the file until `completePhoto`. Raises `DomainError`."""
        if self._remaining == self._max_bytes:
            raise BadUserInput("The file is empty.")
        assert self._file is not None
        try:
            await asyncio.to_thread(self._file.keep, self._max_bytes - self._remaining)
        except UploadGone:
            raise no_reservation() from None


def too_large(max_bytes: int) -> Refused:
    """Return the refusal of a file with more than `max_bytes`."""
    return Refused(413, BadUserInput(f"The file may have at most {max_bytes} bytes."))


def refusal_of(problem: DomainError) -> Refused:
    """Return the refusal of an upload because of an error, with Retry-After if the error states a delay."""
    headers = {"retry-after": str(problem.extensions["retryAfter"])} if "retryAfter" in problem.extensions else {}
    status = next((status for kind, status in _STATUS.items() if isinstance(problem, kind)), 503)
    return Refused(status, problem, **headers)


_STATUS: dict[type[DomainError], int] = {
    BadUserInput: 400,
    Forbidden: 403,
    NotFound: 404,
    Conflict: 409,
    Throttled: 429,
}
