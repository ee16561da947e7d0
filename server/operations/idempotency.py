"""Idempotency keys: a mutation is executed once for its caller and key, and its response is replayed for a day.

https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-idempotency-key-header-07
"""

import asyncio
import hashlib
import json
import logging
import re
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from datastore.dynamodb.retry.backoff import Backoff
from datastore.errors import (
    AnswerNotKept,
    BadUserInput,
    DomainError,
    IdempotencyMismatch,
    Internal,
    Throttled,
    Timeout,
    Unauthenticated,
    Unavailable,
)
from datastore.gateway.idempotency_records import (
    Claim,
    ClaimResult,
    EncodedResponse,
    IdempotencyRecord,
    IdempotencyRecords,
    encoded_response,
)
from datastore.model.ids import IdSource
from datastore.model.timestamps import from_iso, iso
from datastore.primitives.tasks import cancel
from datastore.session.metering import Meter
from datastore.session.store import Store
from server.operations.outcome import Outcome, encode, format_error, replayed
from server.operations.request import Request

MAX_KEY_CHARACTERS = 255
# The lease of a claim starts before the claim is written, and must not expire before the response is stored. The claim
# takes at most CLAIMING_SECONDS (a slower claim is not used), the mutation its deadline, which includes the wait for a
# slot, and storing the response STORING_SECONDS. CLOCK_SECONDS allow for clock skew and a late event loop.
CLAIMING_SECONDS = 10.0
STORING_SECONDS = 10.0
CLOCK_SECONDS = 10.0
MARGIN_SECONDS = CLAIMING_SECONDS + STORING_SECONDS + CLOCK_SECONDS
STOP_SECONDS = 5.0
# The number of mutations that may continue after their clients disconnected. Each holds memory and calls until its
# deadline.
MAX_DETACHED = 256
# The bytes of a body. A larger one is compressed in a thread, because compressing it would block the event loop.
LARGE_BODY = 2**18
POLLING = Backoff(initial=0.1, maximum=1.0, attempts=500)

# The codes of errors that a retry may avoid, provided that nothing was written.
_TRANSIENT = {Throttled.code, Unavailable.code, Timeout.code, Internal.code, Unauthenticated.code}
_VISIBLE = re.compile(r"[\x21-\x7e]+")
_log = logging.getLogger(__name__)

OpenStore = Callable[[float, Meter], Store]
Run = Callable[[IdSource], Awaitable[Outcome]]


@dataclass(frozen=True, slots=True)
class _Running:
    """A running mutation of this process. Concurrent requests with the same key wait for its response body."""

    fingerprint: str
    body: asyncio.Future[bytes]


class Idempotency:
    """An executor of mutations, once for each idempotency key. A mutation takes up to `deadline` seconds."""

    def __init__(
        self,
        open_store: OpenStore,
        *,
        deadline: float,
        now: Callable[[], datetime],
        new_id: Callable[[], str],
    ) -> None:
        self._open_store = open_store
        self._deadline = deadline
        self._now = now
        self._new_id = new_id
        self._running: dict[tuple[str, str], _Running] = {}
        self._tasks: set[asyncio.Task[Outcome]] = set()
        self._detached: set[asyncio.Task[Outcome]] = set()

    async def shielded(self, work: Coroutine[Any, Any, Outcome]) -> Outcome:
        """Return the outcome of `work`. It continues if the client disconnects: a retry receives the response."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self._detach(task)
            raise

    def _detach(self, task: asyncio.Task[Outcome]) -> None:
        if task.done():
            return
        if len(self._detached) >= MAX_DETACHED:
            task.cancel()
        self._detached.add(task)
        task.add_done_callback(self._detached.discard)
        task.add_done_callback(_log_failure)

    async def aclose(self) -> None:
        """Wait up to `STOP_SECONDS` for running mutations, and cancel the others."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=STOP_SECONDS)
        await cancel(*self._tasks)

    async def run_once(self, request: Request, run: Run, meter: Meter) -> Outcome:
        """Return the outcome of `run`, or the stored response to the first request with this caller and key.

        `run` receives the source of its ids. If another process takes the key over, it continues with the same source,
        and so creates the same ids.

        Raises:
            BadUserInput: the key is invalid.
            Unauthenticated: the caller is anonymous.
            IdempotencyMismatch: the key was used for another request.
            Timeout: the first request is still running.
        """
        identity = request.caller.identity
        if identity is None:
            raise Unauthenticated("An Idempotency-Key belongs to its caller: send a token with it.")
        scope = identity.user_id, parse_key(request.params.idempotency_key or "")
        fingerprint = _fingerprint(request)
        running = self._running.get(scope)
        if running is None:
            return await self._lead(scope, fingerprint, run, meter)
        _check(fingerprint, running.fingerprint)
        return replayed(await self._await_body(running))

    async def _lead(self, scope: tuple[str, str], fingerprint: str, run: Run, meter: Meter) -> Outcome:
        """Execute the mutation, and pass its response body to concurrent requests of this process with the same key."""
        running = self._running[scope] = _Running(fingerprint, asyncio.get_running_loop().create_future())
        try:
            outcome = await self._claim_and_run(scope, fingerprint, run, meter)
            running.body.set_result(outcome.body)
            return outcome
        except BaseException as error:
            gone = Unavailable("The request with the same Idempotency-Key was aborted. Try again.")
            running.body.set_exception(error if isinstance(error, Exception) else gone)
            running.body.exception()  # mark as retrieved: there may be no other request
            raise
        finally:
            del self._running[scope]

    async def _await_body(self, running: _Running) -> bytes:
        try:
            async with asyncio.timeout(self._deadline):
                return await asyncio.shield(running.body)
        except TimeoutError:
            raise _still_running() from None

    async def _claim_and_run(self, scope: tuple[str, str], fingerprint: str, run: Run, meter: Meter) -> Outcome:
        claimed = await self._claim(scope, fingerprint, meter)
        if isinstance(claimed, bytes):
            return replayed(claimed)
        try:
            outcome = await run(claimed.origin)
        except DomainError:
            await self._release(self._records(meter, STORING_SECONDS), claimed)
            raise
        # Storing the response has its own time limit, which does not depend on the time that the execution took.
        return await self._store(self._records(meter, STORING_SECONDS), claimed, outcome)

    def _records(self, meter: Meter, seconds: float) -> IdempotencyRecords:
        lease = timedelta(seconds=self._deadline + MARGIN_SECONDS)
        return IdempotencyRecords(self._open_store(seconds, meter), self._now, lease)

    async def _claim(self, scope: tuple[str, str], fingerprint: str, meter: Meter) -> Claim | bytes:
        """Return a claim, or the response of another process once it is stored."""
        owner = self._new_id()
        new = Claim(*scope, fingerprint, owner, 1, IdSource(from_iso(iso(self._now())), owner))
        waiting, delays = self._records(meter, self._deadline), POLLING.delays()
        found = await self._try_claim(new, None, meter)
        while not isinstance(found, Claim):
            if found is None:
                found = await self._try_claim(new, None, meter)
                continue
            _check(fingerprint, found.fingerprint)
            if found.body is not None:
                return found.body
            if found.held_until <= self._now().timestamp():
                found = await self._try_claim(new.taken_over(found), found, meter)
                continue
            try:
                await asyncio.sleep(next(delays))
                found = await waiting.find(*scope)
            except (Timeout, StopIteration):
                raise _still_running() from None
        return found

    async def _try_claim(self, claim: Claim, seen: IdempotencyRecord | None, meter: Meter) -> ClaimResult:
        """Claim the key, or take over the expired record `seen`. Release a claim that is late or ambiguous."""
        records, started_at = self._records(meter, min(CLAIMING_SECONDS, self._deadline)), self._now()
        try:
            found = await (records.begin(claim) if seen is None else records.take_over(claim, seen))
            # The process itself may have been suspended in the meantime.
            if isinstance(found, Claim) and self._now() - started_at > timedelta(seconds=CLAIMING_SECONDS):
                raise Timeout("It took too long to claim the key.", mayHaveBeenApplied=True)
            return found
        except (Timeout, Unavailable, Throttled) as problem:
            if problem.extensions.get("mayHaveBeenApplied"):
                await self._release(self._records(meter, STORING_SECONDS), claim)
            raise type(problem)("The store does not respond; the mutation was not executed. Try again.") from problem

    async def _store(self, records: IdempotencyRecords, claim: Claim, outcome: Outcome) -> Outcome:
        """Store and return the outcome if it is final. If another process took over, return its response instead."""
        if not is_final(outcome):
            await self._release(records, claim)
            return outcome
        try:
            other = await records.finish(claim, await _stored(outcome.body))
        except DomainError as problem:
            _log.error("The response of a mutation could not be stored under its Idempotency-Key: %s", problem)
            return outcome
        return outcome if other is None or other.body is None else replayed(other.body)

    async def _release(self, records: IdempotencyRecords, claim: Claim) -> None:
        try:
            await records.release(claim)
        except DomainError as problem:
            _log.warning("An Idempotency-Key stays claimed until its lease ends: %s", problem)


def is_final(outcome: Outcome) -> bool:
    """Return whether a retry has to receive the same response: the mutation wrote, or would fail in the same way."""
    if outcome.wrote:
        return True
    return not outcome.is_failure and not any(
        error["extensions"]["code"] in _TRANSIENT for error in outcome.formatted_errors
    )


def parse_key(text: str) -> str:
    """Return the key without the quotes of the draft, which many clients omit. Raises `BadUserInput`."""
    key = text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text
    if len(key) > MAX_KEY_CHARACTERS or not _VISIBLE.fullmatch(key):
        raise BadUserInput(f"The Idempotency-Key must have 1 to {MAX_KEY_CHARACTERS} visible ASCII characters.")
    return key


def _fingerprint(request: Request) -> str:
    """Return the hash of a request: the document, the operation, the variables, and the caller's role and email.

    Role and email decide what the response shows. The user id is part of the key's scope.
    """
    caller, operation = request.caller.identity, request.operation
    rights = None if caller is None else [caller.role.value, caller.email]
    identity = [operation.document.hash, operation.name, request.params.variables or {}, rights]
    try:
        text = json.dumps(identity, sort_keys=True, separators=(",", ":"))
    except RecursionError:
        raise BadUserInput("The variables are nested too deeply for an Idempotency-Key.") from None
    return hashlib.sha256(text.encode()).hexdigest()


def _check(fingerprint: str, known: str) -> None:
    if fingerprint != known:
        raise IdempotencyMismatch(
            "This Idempotency-Key was used for another operation, with other variables, or with a token of another "
            "role or email, in the last 24 hours."
        )


def _still_running() -> Timeout:
    return Timeout("The first request with this Idempotency-Key is still being executed; try again in a moment.")


async def _stored(body: bytes) -> EncodedResponse:
    """Return the encoded response, or an encoded error in its place if the response is too large to be stored."""
    stored = await asyncio.to_thread(encoded_response, body) if len(body) > LARGE_BODY else encoded_response(body)
    if stored.fits:
        return stored
    lost = AnswerNotKept(
        "This mutation was executed before; its response was too large to be stored. Read what it changed."
    )
    return encoded_response(encode({"errors": [format_error(lost)]}))


def _log_failure(task: asyncio.Task[Outcome]) -> None:
    """Log the failure of a task that no client awaits."""
    if not task.cancelled() and task.exception() is not None:
        _log.error("A mutation failed after its client disconnected", exc_info=task.exception())
