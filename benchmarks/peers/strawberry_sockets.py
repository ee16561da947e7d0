"""Subscriptions by Strawberry's handler of graphql-transport-ws on uvicorn: one execution for each subscriber."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import strawberry
import uvicorn
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from strawberry.asgi import GraphQL

from benchmarks.peers.following import PeerOptions, events


class Topic:
    """A topic with one queue for each subscriber."""

    def __init__(self) -> None:
        self._queues: set[asyncio.Queue[Any]] = set()

    def publish(self, event: object) -> None:
        for queue in self._queues:
            queue.put_nowait(event)

    async def listen(self) -> AsyncIterator[Any]:
        queue: asyncio.Queue[Any] = asyncio.Queue()
        self._queues.add(queue)
        try:
            while True:
                yield await queue.get()
        finally:
            self._queues.discard(queue)


@strawberry.type
class Innings:
    runs: int
    wickets: int
    overs: str


@strawberry.type
class LiveScore:
    status: str
    innings: list[Innings]


@strawberry.type
class MatchUpdate:
    match_id: strawberry.ID
    version: int
    changed: list[str]
    live_score: LiveScore


@strawberry.type
class Earthquake:
    event_id: strawberry.ID
    magnitude: float
    place: str
    latitude: float
    longitude: float


@strawberry.type
class Query:
    ready: bool = True


TOPIC = Topic()


@strawberry.type
class Subscription:
    @strawberry.subscription
    async def match_updates(self, match_id: strawberry.ID) -> AsyncIterator[MatchUpdate]:
        async for update in TOPIC.listen():
            if update.match_id == match_id:
                yield update

    @strawberry.subscription
    async def earthquake_detected(self) -> AsyncIterator[Earthquake]:
        async for event in TOPIC.listen():
            yield event


def record(event: Mapping[str, Any]) -> MatchUpdate | Earthquake:
    if "eventId" in event:
        return Earthquake(
            event_id=strawberry.ID(event["eventId"]),
            magnitude=event["magnitude"],
            place=event["place"],
            latitude=event["latitude"],
            longitude=event["longitude"],
        )
    live = event["liveScore"]
    return MatchUpdate(
        match_id=strawberry.ID(event["matchId"]),
        version=event["version"],
        changed=event["changed"],
        live_score=LiveScore(status=live["status"], innings=[Innings(**innings) for innings in live["innings"]]),
    )


def main() -> None:
    options = PeerOptions.parsed()

    @asynccontextmanager
    async def publishing(_: Starlette) -> AsyncIterator[None]:
        async def publish() -> None:
            async for event in events(options):
                TOPIC.publish(record(event))

        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(publish())
            yield
            task.cancel()

    graphql = GraphQL[None, None](strawberry.Schema(Query, subscription=Subscription))
    app = Starlette(routes=[WebSocketRoute("/graphql", graphql)], lifespan=publishing)
    uvicorn.run(app, host="127.0.0.1", port=options.port, log_level="error", timeout_graceful_shutdown=1)


if __name__ == "__main__":
    main()
