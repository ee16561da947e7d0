"""A small schema without a store, its context, and a stand-in for token verification."""

import asyncio
from collections.abc import AsyncIterator

import strawberry
from graphql import GraphQLError

from datastore.errors import Conflict, NotFound, Unauthenticated, Unavailable
from datastore.model.identity import Identity, Role
from datastore.model.ids import IdSource
from datastore.session.metering import Meter
from datastore.session.request_reads import ReadFreshness


class ToyContext:
    """A context that records what the resolvers saw."""

    used_identity = True

    def __init__(self, identity: Identity | None, _freshness: ReadFreshness, _compiled: bool) -> None:
        self.identity = identity

    @property
    def meter(self) -> Meter:
        return Meter()

    def close(self) -> None:
        pass

    def use_id_source(self, source: IdSource) -> None:
        pass

    def advance_watermark(self) -> None:
        raise AssertionError("nothing is followed over HTTP")


Info = strawberry.Info[ToyContext, None]
seen: dict[str, int] = {}


async def endure(name: str) -> str:
    seen[name] = seen.get(name, 0) + 1
    try:
        await asyncio.sleep(20)
    except asyncio.CancelledError:
        seen[f"{name} cancelled"] = seen.get(f"{name} cancelled", 0) + 1
        raise
    return name


@strawberry.type(name="Query")
class ToyQuery:
    @strawberry.field
    def hello(self, name: str = "world") -> str:
        return f"hello {name}"

    @strawberry.field
    def me(self, info: Info) -> str | None:
        return info.context.identity.user_id if info.context.identity else None

    @strawberry.field
    def number(self, n: int) -> int:
        return n

    @strawberry.field
    def missing(self) -> str | None:
        raise NotFound("No such thing.", id="x")

    @strawberry.field
    async def grouped(self) -> str | None:
        async def clash() -> None:
            raise Conflict("Taken.")

        async with asyncio.TaskGroup() as group:
            group.create_task(clash())
        return None

    @strawberry.field
    def broken(self) -> str | None:
        raise RuntimeError("the password is swordfish")

    @strawberry.field
    def too_big(self) -> int | None:
        return 2**40

    @strawberry.field
    def unspeakable(self) -> str:
        return "\ud800"

    @strawberry.field
    def deliberate(self) -> str | None:
        raise GraphQLError("Said on purpose.", extensions={"code": "MINE"})

    @strawberry.field
    def many(self) -> list[str | None]:
        return [object() for _ in range(50)]  # type: ignore[misc]

    @strawberry.field
    async def slow(self, name: str = "slow") -> str:
        return await endure(name)


@strawberry.type(name="Mutation")
class ToyMutation:
    @strawberry.mutation
    def change(self) -> str:
        return "changed"


@strawberry.type(name="Subscription")
class ToySubscription:
    @strawberry.subscription
    async def ticks(self) -> AsyncIterator[int]:
        yield 1


SCHEMA = strawberry.Schema(ToyQuery, ToyMutation, ToySubscription)


async def identify_toy_user(token: str | None) -> Identity | None:
    if token == "wrong":
        raise Unauthenticated("The token's signature is wrong.")
    if token == "unlucky":
        raise Unavailable("The keys cannot be fetched.")
    return Identity(token, Role.USER) if token else None
