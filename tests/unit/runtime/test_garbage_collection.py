"""The garbage collector of a server runs rarely, and still frees reference cycles."""

import asyncio
import gc
import weakref
from collections import Counter
from collections.abc import Iterator

import pytest

from datastore.model.identity import Identity, Role
from server.admission.callers import Caller
from server.documents.request import GraphQLParams
from server.operations.request import Request, Transport
from server.uvicorn import GC_THRESHOLDS, settle_garbage_collector
from tests.support.served import Served

LAYERS = ("server", "jit", "schema", "resolvers", "datastore")


class Node:
    """An object that refers to itself."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def settled() -> Iterator[None]:
    before = gc.get_threshold()
    settle_garbage_collector()
    yield
    gc.set_threshold(*before)


@pytest.mark.usefixtures("settled")
def test_reference_cycles_are_freed_over_time() -> None:
    lost = weakref.ref(Node())
    assert lost() is not None
    kept = [[number] for number in range(2 * GC_THRESHOLDS[0])]
    assert lost() is None
    assert len(kept) == 2 * GC_THRESHOLDS[0]


QUERIES = (
    '{ post(id: "noor-1") { text author { name } comments(first: 3) { nodes { text author { name } } } } }',
    '{ homeFeed(userId: "demo", first: 5) { nodes { post { text likedByViewer } } } }',
    "{ liveMatches { matchId match { homeTeam { name } } } }",
    '{ sightings(area: "Downtown") { nodes { description reporter { reportTotal } } } }',
)


async def test_queries_leave_nothing_to_the_collector(served: Served) -> None:
    await served.gateway.background.demo().load()
    runner = served.gateway.server.runner
    caller = Caller(Identity("demo", Role.USER), "192.0.2.1")

    async def ask() -> None:
        for query in QUERIES:
            request = await runner.prepare(GraphQLParams(query), caller, Transport.HTTP)
            assert isinstance(request, Request)
            assert not (await runner.run(request)).errors
        await asyncio.sleep(0.02)

    for _ in range(3):  # objects that are created once exist by now
        await ask()
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        for _ in range(3):
            await ask()
        gc.collect()
        left = Counter(f"{type(thing).__module__}.{type(thing).__name__}" for thing in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    ours = {name: count for name, count in left.items() if name.split(".")[0] in LAYERS}
    assert ours == {}
