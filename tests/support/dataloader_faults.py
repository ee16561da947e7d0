"""Stores and faults for the tests of dataloaders."""

from collections.abc import Callable
from typing import Any

import orjson
from aiohttp import web

from datastore.model.access_patterns import Table
from tests.support.fault_proxy import Fault, Proxy, Seen


def withhold(table: Table, unready: Callable[[str], bool]) -> Fault:
    """Leave the keys for which `unready` (by sort key) holds unprocessed, as a busy table does."""

    async def answer(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        ready: dict[str, Any] = {}
        rest: dict[str, Any] = {}
        for name, entry in seen.body["RequestItems"].items():
            for part, wanted in ((ready, False), (rest, True)):
                keys = [key for key in entry["Keys"] if unready(key[table.sort]["S"]) is wanted]
                if keys:
                    part[name] = entry | {"Keys": keys}
        answered: dict[str, Any] = {"Responses": {}}
        if ready:
            _, _, content = await proxy.ask(Seen(seen.operation, {"RequestItems": ready}, seen.request))
            answered = orjson.loads(content)
        return web.Response(body=orjson.dumps(answered | {"UnprocessedKeys": rest}))

    return answer
