"""Idempotency-Key: a mutation is executed once for its caller and key, and its answer is given again for a day.

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
from datastore.gateway.idempotency_records import Claim, Found, IdempotencyRecord, IdempotencyRecords, Packed, packed
from datastore.model.ids import IdSource
from datastore.model.timestamps import from_iso, iso
from datastore.session.metering import Meter
from datastore.session.store import Store
from server.operations.outcome import Outcome, encode, replayed, told_error
from server.operations.request import Request

LONGEST_KEY = 255
# A claim counts from before it is put, and nobody else may take it over until the answer is kept. Between the two pass
# at most CLAIMING_SECONDS (a claim that took longer is not used), the deadline of the mutation, its wait for a turn
# included, and KEEPING_SECONDS. The rest is for clocks that differ, and for a loop that is late.
CLAIMING_SECONDS = 10.0
KEEPING_SECONDS = 10.0
CLOCK_SECONDS = 10.0
MARGIN_SECONDS = CLAIMING_SECONDS + KEEPING_SECONDS + CLOCK_SECONDS
STOP_SECONDS = 5.0
# Mutations that go on although their callers have gone: each holds memory and calls for up to its deadline.
MOST_LEFT = 256
# To compress much takes so long that others would wait.
LARGE_BODY = 2**18
POLLING = Backoff(initial=0.1, maximum=1.0, attempts=500)

# What may be otherwise the next time, provided that nothing was written.
_PASSING = {Throttled.code, Unavailable.code, Timeout.code, Internal.code, Unauthenticated.code}
_VISIBLE = re.compile(r"[\x21-\x7e]+")
_log = logging.getLogger(__name__)

OpenStore = Callable[[float, Meter], Store]
Run = Callable[[IdSource], Awaitable[Outcome]]


@dataclass(frozen=True, slots=True)
class _Running:
    """A mutation of this process that is being answered; twins wait for its body."""

    fingerprint: str
    body: asyncio.Future[bytes]


class Idempotency:
    """Answers mutations once. `open_store` is given seconds and a meter; a mutation takes up to `deadline` seconds."""

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
        self._left: set[asyncio.Task[Outcome]] = set()

    async def lasting(self, work: Coroutine[Any, Any, Outcome]) -> Outcome:
        """What `work` answers. It goes on to its end when the caller leaves: the next try gets its answer."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self._leave(task)
            raise

    def _leave(self, task: asyncio.Task[Outcome]) -> None:
        if task.done():
            return
        if len(self._left) >= MOST_LEFT:
            task.cancel()
        self._left.add(task)
        task.add_done_callback(self._left.discard)
        task.add_done_callback(_log_failure)

    async def aclose(self) -> None:
        """Let what is under way come to its end, for a moment."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=STOP_SECONDS)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def answered(self, request: Request, run: Run, meter: Meter) -> Outcome:
        """What `run` answers, or what it answered to the first request of this caller with this key.

        `run` is given what its ids are to be made from: the same if it is executed anew, after who executed it is gone.
        Raises `BadUserInput` for a key that is none, `Unauthenticated` without a caller, `IdempotencyMismatch` for a
        key that was used for something else, `Timeout` when the first request takes too long, and what `run` raises.
        """
        identity = request.caller.identity
        if identity is None:
            raise Unauthenticated("An Idempotency-Key counts for its caller alone: send a token with it.")
        scope = identity.user_id, checked_key(request.asked.idempotency_key or "")
        fingerprint = _fingerprint(request)
        running = self._running.get(scope)
        if running is None:
            return await self._lead(scope, fingerprint, run, meter)
        _check(fingerprint, running.fingerprint)
        return replayed(await self._body_of(running))

    async def _lead(self, scope: tuple[str, str], fingerprint: str, run: Run, meter: Meter) -> Outcome:
        """Answer for all requests of this process that come with the same key meanwhile."""
        running = self._running[scope] = _Running(fingerprint, asyncio.get_running_loop().create_future())
        try:
            outcome = await self._first(scope, fingerprint, run, meter)
            running.body.set_result(outcome.body)
            return outcome
        except BaseException as error:
            gone = Unavailable("The request with the same Idempotency-Key was broken off; try again.")
            running.body.set_exception(error if isinstance(error, Exception) else gone)
            running.body.exception()  # looked at: there may be no twin
            raise
        finally:
            del self._running[scope]

    async def _body_of(self, running: _Running) -> bytes:
        try:
            async with asyncio.timeout(self._deadline):
                return await asyncio.shield(running.body)
        except TimeoutError:
            raise _waited() from None

    async def _first(self, scope: tuple[str, str], fingerprint: str, run: Run, meter: Meter) -> Outcome:
        claimed = await self._claim(scope, fingerprint, meter)
        if isinstance(claimed, bytes):
            return replayed(claimed)
        try:
            outcome = await run(claimed.origin)
        except DomainError:
            await self._release(self._answers(meter, KEEPING_SECONDS), claimed)
            raise
        # Whatever time it took, there has to be some for keeping its answer.
        return await self._keep(self._answers(meter, KEEPING_SECONDS), claimed, outcome)

    def _answers(self, meter: Meter, seconds: float) -> IdempotencyRecords:
        lease = timedelta(seconds=self._deadline + MARGIN_SECONDS)
        return IdempotencyRecords(self._open_store(seconds, meter), self._now, lease)

    async def _claim(self, scope: tuple[str, str], fingerprint: str, meter: Meter) -> Claim | bytes:
        """A claim, or the answer that another process has given: it is waited for."""
        owner = self._new_id()
        mine = Claim(*scope, fingerprint, owner, 1, IdSource(from_iso(iso(self._now())), owner))
        waiting, delays = self._answers(meter, self._deadline), POLLING.delays()
        found = await self._tried(mine, None, meter)
        while not isinstance(found, Claim):
            if found is None:
                found = await self._tried(mine, None, meter)
                continue
            _check(fingerprint, found.fingerprint)
            if found.body is not None:
                return found.body
            if found.held_until <= self._now().timestamp():
                found = await self._tried(mine.taken_over(found), found, meter)
                continue
            try:
                await asyncio.sleep(next(delays))
                found = await waiting.find(*scope)
            except (Timeout, StopIteration):
                raise _waited() from None
        return found

    async def _tried(self, claim: Claim, seen: IdempotencyRecord | None, meter: Meter) -> Found:
        """Claim the key, or take it over as it was `seen`. A claim that came too late, or unheard, is given back."""
        answers, began = self._answers(meter, min(CLAIMING_SECONDS, self._deadline)), self._now()
        try:
            found = await (answers.begin(claim) if seen is None else answers.take_over(claim, seen))
            # The process itself may have stood still.
            if isinstance(found, Claim) and self._now() - began > timedelta(seconds=CLAIMING_SECONDS):
                raise Timeout("It took too long to claim the key.", mayHaveBeenApplied=True)
            return found
        except (Timeout, Unavailable, Throttled) as problem:
            if problem.extensions.get("mayHaveBeenApplied"):
                await self._release(self._answers(meter, KEEPING_SECONDS), claim)
            raise type(problem)("The store does not answer; nothing was done. Try again.") from problem

    async def _keep(self, answers: IdempotencyRecords, claim: Claim, outcome: Outcome) -> Outcome:
        """The outcome, kept if it is final; what another answered that has taken over meanwhile."""
        if not is_final(outcome):
            await self._release(answers, claim)
            return outcome
        try:
            other = await answers.finish(claim, await _stored(outcome.body))
        except DomainError as problem:
            _log.error("The answer of a mutation could not be kept under its Idempotency-Key: %s", problem)
            return outcome
        return outcome if other is None or other.body is None else replayed(other.body)

    async def _release(self, answers: IdempotencyRecords, claim: Claim) -> None:
        try:
            await answers.release(claim)
        except DomainError as problem:
            _log.warning("An Idempotency-Key stays claimed until its lease ends: %s", problem)


def is_final(outcome: Outcome) -> bool:
    """Whether the same request is to be answered so again: it changed something, or would fail in the same way."""
    if outcome.wrote:
        return True
    return not outcome.is_failure and not any(error["extensions"]["code"] in _PASSING for error in outcome.described)


def checked_key(text: str) -> str:
    """The key, without the quotes that the draft puts around it and many clients do not. Raises `BadUserInput`."""
    key = text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text
    if len(key) > LONGEST_KEY or not _VISIBLE.fullmatch(key):
        raise BadUserInput(f"The Idempotency-Key must have 1 to {LONGEST_KEY} visible ASCII characters.")
    return key


def _fingerprint(request: Request) -> str:
    """Return the hash of what is asked and with which rights.

    That is the document's text, the operation in it, the variables, whatever their order, and the caller's role and
    email: both decide what an answer shows. The user id is part of the key's scope.
    """
    caller, operation = request.caller.identity, request.operation
    rights = None if caller is None else [caller.role.value, caller.email]
    asked = [operation.document.hash, operation.name, request.asked.variables or {}, rights]
    try:
        text = json.dumps(asked, sort_keys=True, separators=(",", ":"))
    except RecursionError:
        raise BadUserInput("The variables are nested too deeply for an Idempotency-Key.") from None
    return hashlib.sha256(text.encode()).hexdigest()


def _check(fingerprint: str, known: str) -> None:
    if fingerprint != known:
        raise IdempotencyMismatch(
            "This Idempotency-Key was used for another operation, with other variables, or with a token of another "
            "role or email, in the last 24 hours."
        )


def _waited() -> Timeout:
    return Timeout("The first request with this Idempotency-Key is still being executed; try again in a moment.")


async def _stored(body: bytes) -> Packed:
    """The answer as it is stored; in place of one that is too large, that there was one."""
    answer = await asyncio.to_thread(packed, body) if len(body) > LARGE_BODY else packed(body)
    if answer.fits:
        return answer
    lost = AnswerNotKept(
        "This mutation was executed before; its answer was too large to be kept. Read what it changed."
    )
    return packed(encode({"errors": [told_error(lost)]}))


def _log_failure(task: asyncio.Task[Outcome]) -> None:
    """Nobody waits for the task any more."""
    if not task.cancelled() and task.exception() is not None:
        _log.error("A mutation whose caller had gone failed", exc_info=task.exception())
