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
from datastore.photos.upload_tokens import no_reservation, reservation_for, uploader_of
from datastore.session.store import Store
from server.admission.budgets import CallerBudgets
from server.admission.callers import Caller
from server.http.refusals import Refused
from server.media.multipart import MOST_AROUND, Opening

# The cost of an upload in read units: the read of its reservation, and one unit for each block of bytes.
RESERVATION_UNITS, BYTES_PER_UNIT = 1.0, 65_536


@dataclass(frozen=True, slots=True)
class UploadAdmission:
    """What decides whether the process takes a file. `open_store` opens a store to read its reservation from."""

    open_store: Callable[[], Store]
    budgets: CallerBudgets
    limits: IncomingLimits
    # The keys of the files that arrive.
    arriving: set[str] = field(default_factory=set)


class Upload:
    """The file of one form: checked against its token and reservation first, and against its size as it arrives.

    `length` is the length of the form that the client announced, and `address` the client's. Cleanups are pushed on
    the `stack`.
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
        self._left = 0
        self._most = 0

    async def begin(self, opening: Opening) -> Callable[[bytes], None]:
        """Return what to write the file to.

        Raises `Refused`, and `DomainError` when the reservation is gone, the uploader's budget or room is spent, or the
        file cannot be kept.
        """
        token = self._token(opening)
        self._most = self._left = token["most"]
        if self._length > self._most + MOST_AROUND:
            raise too_large(self._most)
        self._take_turn(token["key"])
        caller, units = self._uploader(token), float(ceil(self._length / BYTES_PER_UNIT))
        if caller is not None:
            await self._admission.budgets.charge(caller, RESERVATION_UNITS + units)
        try:
            self._file = await self._open(token)
        except BaseException:
            if caller is not None:  # nothing of the file was taken
                await self._admission.budgets.settle(caller, -units)
            raise
        return self._write

    def _token(self, opening: Opening) -> dict[str, Any]:
        token = self._objects.open_token(opening.token, b"upload", self._now)
        if token is None or not token["key"].startswith(INCOMING):
            raise Forbidden("The token is not right, or has expired.")
        if opening.content_type.lower() != token["type"]:
            raise Refused(415, BadUserInput(f"The file must be sent as Content-Type: {token['type']}."))
        return token

    def _uploader(self, token: dict[str, Any]) -> Caller | None:
        """Whose budget the upload is charged to; None for a token of a version that did not say."""
        named = uploader_of(token)
        return None if named is None else Caller(Identity(named[0], Role(named[1])), self._address)

    def _take_turn(self, key: str) -> None:
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
                max_bytes=min(self._length, self._most),
                seconds=(reservation.expires_at - self._now).total_seconds(),
                limits=self._admission.limits,
            )
        )

    def _write(self, content: bytes) -> None:
        # To the disk of this machine, piece by piece: that takes no longer than to hand it to a thread.
        self._left -= len(content)
        if self._left < 0:
            raise too_large(self._most)
        assert self._file is not None
        self._file.write(content)

    async def keep(self) -> None:
        """Have the file wait for `completePhoto`. Raises `DomainError`."""
        if self._left == self._most:
            raise BadUserInput("The file is empty.")
        assert self._file is not None
        try:
            await asyncio.to_thread(self._file.keep, self._most - self._left)
        except UploadGone:
            raise no_reservation() from None


def too_large(most: int) -> Refused:
    """The refusal of a file with more bytes."""
    return Refused(413, BadUserInput(f"The file may have at most {most} bytes."))


def refusal_of(problem: DomainError) -> Refused:
    """The refusal of an upload for a reason, with Retry-After where the reason has one."""
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
