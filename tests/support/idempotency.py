"""Requests with an idempotency key, and the processes that execute them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from graphql import GraphQLError

from datastore.database import Database
from datastore.gateway.idempotency_records import IdempotencyRecords
from datastore.model.identity import Identity, Role
from datastore.model.ids import IdSource
from datastore.session.metering import Deadline, Meter
from datastore.session.store import Store
from server.admission.callers import Caller
from server.documents.request import GraphQLParams
from server.operations.idempotency import Idempotency
from server.operations.outcome import Outcome
from server.operations.request import Request, Transport
from tests.support.fault_proxy import Proxy, client_of
from tests.support.served import Clock

LEASE = timedelta(seconds=60)


def keyed_request(key: str = "k", text: str = "mutation { a }", user: str = "ada", **variables: Any) -> Request:
    operation = SimpleNamespace(document=SimpleNamespace(hash=text), name=None)
    caller = Caller(Identity(user, Role.USER))
    asked = GraphQLParams(text, variables, idempotency_key=key)
    return Request(asked, caller, Transport.HTTP, cast(Any, operation), 0.0)


def failed(error: Exception, *, path: list[str | int] | None = None, wrote: bool = False) -> Outcome:
    """Return the outcome of a failed field, or with an empty path of a failed operation."""
    where = ["a"] if path is None else path or None
    return Outcome(None, [GraphQLError(str(error), path=where, original_error=error)], wrote=wrote)


@dataclass
class CountedMutation:
    """A mutation that counts its executions and returns the outcome that the test chose."""

    outcome: Callable[[int], Outcome] = lambda number: Outcome({"a": number}, wrote=True)
    times: int = 0
    may_go_on: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.may_go_on.set()

    async def __call__(self, origin: IdSource) -> Outcome:
        self.times += 1
        number = self.times
        await self.may_go_on.wait()
        return self.outcome(number)


@dataclass
class IdempotentProcess:
    """One of several processes on the same table."""

    once: Idempotency
    store: Callable[[float, Meter], Store]
    clock: Clock

    async def ask(self, asked: Request, work: Callable[[IdSource], Awaitable[Outcome]]) -> Outcome:
        return await self.once.run_once(asked, work, Meter())

    def answers(self) -> IdempotencyRecords:
        return IdempotencyRecords(self.store(10, Meter()), self.clock, LEASE)


@pytest.fixture
async def processes(
    database: Database, proxy: Proxy, clock: Clock
) -> AsyncIterator[tuple[IdempotentProcess, IdempotentProcess]]:
    ids = iter(range(10**6))
    async with client_of(proxy) as client:

        def store(seconds: float, meter: Meter) -> Store:
            deadline = Deadline(seconds)
            return Store(client, prefix=database.prefix, deadline=deadline, token=lambda: "", meter=meter, now=clock)

        def process() -> IdempotentProcess:
            once = Idempotency(store, deadline=2, now=clock, new_id=lambda: f"id{next(ids)}")
            return IdempotentProcess(once, store, clock)

        yield process(), process()
