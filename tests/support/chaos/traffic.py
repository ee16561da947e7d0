"""Requests of all clients with their outcomes, and the phases of a run to which they belong."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from tests.support.remote import LOST, PASSING, BrokenAnswer, Received, Spread
from tests.support.until import until

PROBE_SECONDS = 0.1
PROBE = {"query": '{ earthquake(id: "us0") { eventId } }'}
CALM = "between and after faults"


@dataclass(frozen=True, slots=True)
class SentRequest:
    """A request by the monotonic clock. `failure` is None if a gateway executed or refused the operation."""

    began: float
    ended: float
    failure: str | None
    is_acknowledged_write: bool
    # The operation and its errors, of a request that failed.
    details: str = ""

    @property
    def seconds(self) -> float:
        return self.ended - self.began


def failure_of(received: Received) -> str | None:
    """Return the temporary error of a response: the name of the exception, or the status and the code."""
    errors = received.body.get("errors", ())
    codes = {error["extensions"]["code"] for error in errors} & PASSING
    if not codes:
        return None
    return received.code if LOST in errors else f"{received.code} {'+'.join(sorted(codes))}"


class RecordedSpread(Spread):
    """Posts as `Spread` does, and records each request. A response that no gateway may send is kept in `broken`."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.requests: list[SentRequest] = []
        self.broken: list[str] = []
        # When the requests without a response were sent.
        self._pending: dict[object, float] = {}

    async def send(self, body: Any, headers: Mapping[str, str]) -> Received:
        key, began = object(), time.monotonic()
        self._pending[key] = began
        try:
            received = await super().send(body, headers)
        except BrokenAnswer as answer:
            self.broken.append(str(answer)[:300])
            received = Received({"errors": [LOST]}, "broken response")
        finally:
            del self._pending[key]
        written = body["query"].lstrip().startswith("mutation") and not received.body.get("errors")
        failure = failure_of(received)
        details = f"{' '.join(body['query'].split())[:100]} {received.body['errors'][:2]}" if failure else ""
        self.requests.append(SentRequest(began, time.monotonic(), failure, written, details))
        return received

    async def until_ended(self, moment: float) -> None:
        """Wait until all requests have ended that were sent before a moment."""
        await until(lambda: all(began > moment for began in self._pending.values()))

    async def probe_until(self, over: asyncio.Event) -> None:
        """Send a query each tenth of a second, however long the others take."""
        async with asyncio.TaskGroup() as probes:
            while not over.is_set():
                probes.create_task(self.send(PROBE, {}))
                with suppress(TimeoutError):
                    await asyncio.wait_for(over.wait(), PROBE_SECONDS)


@dataclass(frozen=True)
class Phase:
    """A part of the run, by the monotonic clock."""

    name: str
    began: float
    ended: float


@dataclass
class Phases:
    """The phases of a run. A request belongs to the last phase that had begun when it was sent."""

    all: list[Phase] = field(default_factory=list)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self.all.append(Phase(name, began, time.monotonic()))

    def by_name(self, requests: Sequence[SentRequest]) -> dict[str, list[SentRequest]]:
        """Return the requests of each phase, in the order of the phases; those between two phases under `CALM`."""
        found: dict[str, list[SentRequest]] = {CALM: [], **{phase.name: [] for phase in self.all}}
        for request in requests:
            of = [phase.name for phase in self.all if phase.began <= request.began <= phase.ended]
            found[of[-1] if of else CALM].append(request)
        return found


def failure_counts(requests: Sequence[SentRequest]) -> Counter[str]:
    return Counter(request.failure for request in requests if request.failure is not None)


def longest_outage(requests: Sequence[SentRequest], began: float, ended: float) -> float:
    """Return the longest time without a successful response that overlaps a period."""
    answered = sorted(request.ended for request in requests if request.failure is None)
    moments = [began, *(moment for moment in answered if moment > began)]
    return max((later - earlier for earlier, later in pairwise(moments) if earlier <= ended), default=0.0)
