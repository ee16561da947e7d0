"""Strawberry on uvicorn, with defaults or tuned.

Usage: python -m benchmarks.peers.strawberry_server PORT STORE_URL CLIENT [tuned]
"""

import gc
import sys

import orjson
import strawberry
import uvicorn
from strawberry.asgi import GraphQL
from strawberry.extensions import ParserCache, ValidationCache

from benchmarks.peers.clients import CLIENTS, Client
from benchmarks.peers.strawberry_schema import Context, build
from benchmarks.peers.strawberry_store import Store

TUNED_THRESHOLD = 100_000


class View(GraphQL[Context, None]):
    """A view that creates a context for each request."""

    def __init__(self, schema: strawberry.Schema, client: Client) -> None:
        super().__init__(schema, graphql_ide=None)
        self._client = client

    async def get_context(self, request: object, response: object) -> Context:
        return Context(Store(self._client))


class TunedView(View):
    """A view that encodes responses with orjson."""

    def decode_json(self, data: str | bytes) -> object:
        return orjson.loads(data)

    def encode_json(self, data: object) -> bytes:
        return orjson.dumps(data)


def main(port: str, store_url: str, client: str, tuned: str = "") -> None:
    schema = build([ParserCache, ValidationCache] if tuned else [])
    view = (TunedView if tuned else View)(schema, CLIENTS[client](store_url))
    if tuned:
        gc.collect()
        gc.freeze()
        gc.set_threshold(TUNED_THRESHOLD)
    uvicorn.run(view, host="127.0.0.1", port=int(port), log_level="warning", access_log=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
