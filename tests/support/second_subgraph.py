"""A second subgraph, which adds fields to `Match` and `User` of the gateway, and has nothing else of them but a key."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import strawberry
from aiohttp import web
from strawberry import federation


@federation.type(keys=["matchId"])
class Match:
    match_id: strawberry.ID

    @strawberry.field
    def ticket_price(self) -> int | None:
        if self.match_id == "sold-out":
            raise ValueError("No tickets are left.")
        return 10 * len(self.match_id)

    @classmethod
    def resolve_reference(cls, matchId: strawberry.ID) -> "Match":
        return cls(match_id=matchId)


@federation.type(keys=["id"])
class User:
    id: strawberry.ID

    @strawberry.field
    def rating(self) -> float:
        return len(self.id) / 2

    @classmethod
    def resolve_reference(cls, id: strawberry.ID) -> "User":
        return cls(id=id)


@federation.type(shareable=True)
class PageInfo:
    has_next_page: bool = False
    has_previous_page: bool = False
    start_cursor: str | None = None
    end_cursor: str | None = None


@strawberry.type
class TicketConnection:
    nodes: list[str]
    page_info: PageInfo


@strawberry.type(name="Query")
class SecondQueries:
    @strawberry.field
    def matches_with_tickets(self, ids: list[strawberry.ID]) -> list[Match]:
        return [Match(match_id=id) for id in ids]

    @strawberry.field
    def rated_users(self, ids: list[strawberry.ID]) -> list[User]:
        return [User(id=id) for id in ids]

    @strawberry.field
    def tickets(self) -> TicketConnection:
        return TicketConnection(nodes=["T1"], page_info=PageInfo())


SCHEMA = federation.Schema(SecondQueries, federation_version="2.3")
SDL = SCHEMA.as_str()


@asynccontextmanager
async def second_subgraph() -> AsyncIterator[str]:
    """Serve the subgraph. Yield its URL."""

    async def answer(request: web.Request) -> web.Response:
        asked: dict[str, Any] = await request.json()
        result = await SCHEMA.execute(asked["query"], asked.get("variables"))
        errors = [error.formatted for error in result.errors or ()]
        return web.json_response({"data": result.data, **({"errors": errors} if errors else {})})

    app = web.Application()
    app.router.add_post("/graphql", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield "http://{}:{}/graphql".format(*runner.addresses[0][:2])
    await runner.cleanup()
