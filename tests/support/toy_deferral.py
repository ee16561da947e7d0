"""A small schema with `@defer` and `@stream` behind a real server, whose resolvers wait for the test."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import strawberry
from strawberry.schema.config import StrawberryConfig

from datastore.errors import NotFound, Unavailable
from datastore.model.identity import Identity
from datastore.model.ids import IdSource
from datastore.session.metering import Meter, ReadTooMuch
from datastore.session.request_reads import ReadFreshness
from server.admission.callers import Caller
from server.documents.document_cache import Documents
from server.documents.limits import DocumentLimits
from server.documents.request import GraphQLParams
from server.http.endpoint import GraphQLHTTP
from server.http.streams.response_stream import ResponseStreams, StreamLimits
from server.operations.outcome import Outcome
from server.operations.report import Report
from server.operations.request import IncrementalFormat, Transport
from server.operations.request import Request as Prepared
from server.operations.runner import Runner
from tests.support.http_server import served as serving


class Studio:
    """The state of the resolvers, which tests read and set."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.go = asyncio.Event()
        self.counts: Counter[str] = Counter()
        self.meter = Meter()


studio = Studio()


class StudioContext:
    """A context that counts its ends."""

    used_identity = False

    def __init__(self, _identity: Identity | None, _freshness: ReadFreshness, compiled: bool) -> None:
        assert not compiled
        self.meter = studio.meter

    def close(self) -> None:
        studio.counts["closed"] += 1

    def use_id_source(self, source: IdSource) -> None:
        raise NotImplementedError

    def advance_watermark(self) -> None:
        raise NotImplementedError


@strawberry.interface
class Named:
    name: str


@strawberry.type
class Player(Named):
    @strawberry.field
    async def age(self) -> int:
        studio.counts["ages"] += 1
        await asyncio.sleep(0)
        return len(self.name)


@strawberry.type
class Film:
    title: str

    @strawberry.field
    async def slow(self) -> str:
        studio.counts["begun"] += 1
        try:
            await studio.go.wait()
        finally:
            studio.counts["ended"] += 1
        return "slow"

    @strawberry.field
    def missing(self) -> str:
        raise NotFound("No such film.")

    @strawberry.field
    def maybe(self) -> str | None:
        raise Unavailable("Not now.")

    @strawberry.field
    async def cancelled(self) -> str:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        result: str = await future
        return result

    @strawberry.field
    def surrogate(self) -> str:
        return "\ud800"

    @strawberry.field
    def expensive(self) -> str:
        studio.meter.stop_error = ReadTooMuch(2, 1)
        raise studio.meter.stop_error

    @strawberry.field
    def long(self) -> str:
        return "x" * 3_999_000

    @strawberry.field
    def star(self) -> Named:
        return Player(name="Ada")

    @strawberry.field
    def actors(self) -> list[Player]:
        return [Player(name="x" * number) for number in range(250)]

    @strawberry.field
    def twin(self) -> "Film":
        return Film(title="Twin")

    @strawberry.field
    def players(self) -> list[Player]:
        return [Player(name="Ada"), Player(name="Ben"), Player(name="Cleo")]

    @strawberry.field
    def nobody(self) -> list[Named | None]:
        return [Player(name="Ada"), None, Player(name="Ben")]


@strawberry.type(name="Query")
class StudioQuery:
    @strawberry.field
    def film(self) -> Film:
        return Film(title="Metropolis")

    @strawberry.field
    def films(self) -> list[Film]:
        return [Film(title="Metropolis"), Film(title="Sunrise")]


@strawberry.type(name="Mutation")
class StudioMutation:
    @strawberry.mutation
    def cut(self) -> Film:
        return Film(title="Cut")


@strawberry.type(name="Subscription")
class StudioSubscription:
    @strawberry.subscription
    async def released(self) -> AsyncIterator[Film]:
        yield Film(title="Metropolis")


SCHEMA = strawberry.Schema(
    StudioQuery,
    StudioMutation,
    StudioSubscription,
    types=[Player],
    config=StrawberryConfig(enable_experimental_incremental_execution=True),
)


def studio_runner(reports: list[Report], deadline: float = 50.0, limits: DocumentLimits | None = None) -> Runner:
    """Return a runner of the schema, and clear what earlier tests have recorded."""
    studio.begin()
    return Runner(Documents(SCHEMA, limits), StudioContext, deadline=deadline, observers=[reports.append])


async def prepared_by(runner: Runner, query: str, variables: dict[str, Any] | None = None) -> Prepared | Outcome:
    return await runner.prepare(GraphQLParams(query, variables), Caller(None, "::1"), Transport.HTTP)


async def outcomes_of(
    runner: Runner, query: str, format: IncrementalFormat = IncrementalFormat.IDS
) -> AsyncIterator[Outcome]:
    """Yield the outcomes of an incremental operation."""
    request = await prepared_by(runner, query)
    assert isinstance(request, Prepared), request
    assert request.is_incremental
    async for outcome in runner.incremental.run(request, format):
        yield outcome


@asynccontextmanager
async def serve_studio(
    reports: list[Report], deadline: float = 50.0, send_timeout: float = 40.0
) -> AsyncIterator[tuple[str, aiohttp.ClientSession, ResponseStreams]]:
    """Serve the schema. Yield its URL, a client, and the open streams."""

    async def nobody(_token: str | None) -> Identity | None:
        raise NotImplementedError

    streams = ResponseStreams(StreamLimits(send_timeout=send_timeout))
    app = GraphQLHTTP(studio_runner(reports, deadline), nobody, streams=streams)
    async with serving(app) as url, aiohttp.ClientSession() as session:
        yield url, session, streams
        await session.close()
