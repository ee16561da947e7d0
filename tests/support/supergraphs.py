"""Supergraphs of the gateway and the second subgraph, and routers from npm that serve them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import schema
from tests.support.node_client import running_script
from tests.support.second_subgraph import SDL, second_subgraph
from tests.support.served import Served

# The composers, and the script of the router that serves the supergraph of each.
ROUTERS = {"apollo": "federation-apollo.js", "guild": "federation-hive.js"}
# Addresses that a supergraph has until its subgraphs are served.
GATEWAY, SECOND = "http://gateway.test/graphql", "http://second.test/graphql"
_composed: dict[str, str] = {}


async def compose(second: str = SDL) -> dict[str, Any]:
    """Return what each composer says of the two subgraphs."""
    subgraphs = [
        {"name": "gateway", "url": GATEWAY, "sdl": schema.federation_sdl()},
        {"name": "second", "url": SECOND, "sdl": second},
    ]
    async with running_script("federation-compose.js") as script:
        await script.tell({"subgraphs": subgraphs})
        found = [await script.said() for _ in ROUTERS]
    return {said["composer"]: said for said in found}


async def supergraph_of(composer: str) -> str:
    """Return a supergraph, which is composed once."""
    if not _composed:
        _composed.update({name: said["supergraph"] for name, said in (await compose()).items()})
    return _composed[composer]


@asynccontextmanager
async def router(served: Served, composer: str, **options: Any) -> AsyncIterator[str]:
    """Run the router of a composer in front of a gateway and the second subgraph. Yield its URL."""
    supergraph = await supergraph_of(composer)
    async with second_subgraph() as second:
        supergraph = supergraph.replace(GATEWAY, f"{served.url}/graphql").replace(SECOND, second)
        async with running_script(ROUTERS[composer]) as script:
            await script.tell({"supergraph": supergraph, **options})
            yield (await script.said())["url"]
