"""The GraphQL schema: the queries, mutations and subscriptions of all systems."""

from collections.abc import Iterable
from functools import cache
from itertools import chain
from typing import Any

import strawberry
from graphql import GraphQLNamedType, GraphQLSchema, is_input_object_type
from strawberry.schema.config import StrawberryConfig

from schema import earthquakes, feeds, matches, photos, sightings
from schema.error_codes import error_codes
from schema.federation import FEDERATION_SCALARS, federation_queries, subgraph_sdl
from schema.me import MeQueries
from schema.nodes import Node, node_queries
from schema.scalars import SCALARS
from schema.systems import System

SYSTEMS: tuple[System, ...] = (
    sightings.SYSTEM,
    feeds.SYSTEM,
    photos.SYSTEM,
    earthquakes.SYSTEM,
    matches.SYSTEM,
)
# The types with a global id. The descriptions of `node` and `nodes`, which are part of the API, list their reads in
# this order: systems with fewer types come first.
NODES: tuple[type[Node], ...] = tuple(
    kind for system in sorted(SYSTEMS, key=lambda system: len(system.nodes)) for kind in system.nodes
)


def _root(name: str, classes: Iterable[type], description: str) -> type:
    """Return a root type with the fields of these classes."""
    return strawberry.type(type(name, tuple(classes), {}), description=description)


@cache
def build(*, incremental: bool = False, federation: bool = False) -> strawberry.Schema:
    """Return the schema, which is built once per process.

    `incremental` adds `@defer` and `@stream`, `federation` the fields of a subgraph.
    """
    own = [*chain.from_iterable(system.queries for system in SYSTEMS), node_queries(NODES), MeQueries]
    schema = strawberry.Schema(
        query=_root(
            "Query",
            [*own, federation_queries(NODES, federation_sdl())] if federation else own,
            "The queries. Fields that name no callers are open to everyone, with or without a token.",
        ),
        mutation=_root(
            "Mutation",
            chain.from_iterable(system.mutations for system in SYSTEMS),
            "The mutations. Each of them requires a token. Send an `Idempotency-Key` header to repeat a request "
            "safely.",
        ),
        subscription=_root(
            "Subscription",
            chain.from_iterable(system.subscriptions for system in SYSTEMS),
            "The subscriptions, over WebSocket, server-sent events or multipart responses. Fields that name no "
            "callers are open to everyone. A client that was disconnected resumes with the extension `resumeAfter` of "
            "its request.",
        ),
        types=[*NODES, error_codes()],
        config=StrawberryConfig(
            scalar_map=SCALARS | FEDERATION_SCALARS if federation else SCALARS,
            enable_experimental_incremental_execution=incremental,
        ),
    )
    _fix_is_one_of(schema._schema)
    return schema


@cache
def federation_sdl() -> str:
    """Return the schema of the subgraph, for the composition of a supergraph."""
    return subgraph_sdl(build().as_str(), NODES)


def _fix_is_one_of(schema: GraphQLSchema) -> None:
    """Replace Strawberry's resolver of `isOneOf`, which fails for lists and non-null types."""
    introspected: Any = schema.type_map["__Type"]
    introspected.fields["isOneOf"].resolve = _is_one_of


def _is_one_of(kind: GraphQLNamedType, _info: Any) -> bool | None:
    """Return whether an input object is a OneOf, or None for any other type, as the specification requires."""
    return kind.is_one_of if is_input_object_type(kind) else None
