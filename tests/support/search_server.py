"""A stand-in for OpenSearch: an HTTP server that speaks the part of its REST API that the search index uses.

It is no OpenSearch, but it knows nothing of this project's index either: it runs the script of an update
(`painless.py`), and checks mappings, evaluates queries and sorts by the rules of the documentation
(`search_language.py`). A wrong query gives wrong results, and an invalid request gets the status 400. To check
against a real OpenSearch, set `OPENSEARCH_URL` to its URL.
https://docs.opensearch.org/latest/api-reference/
"""

import asyncio
import json
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.support.painless import ScriptError, run_painless
from tests.support.search_language import Fields, SearchRefusal, allow_only, search

Document = dict[str, Any]

MOST_ID_BYTES = 512
SETTINGS = {"number_of_shards", "number_of_replicas"}


@dataclass
class Index:
    """An index with its documents by id and the names of its aliases."""

    mappings: dict[str, Any]
    aliases: set[str] = field(default_factory=set)
    documents: dict[str, Document] = field(default_factory=dict)


class SearchServer:
    """The stand-in, at `url`. `failing` is the status of all responses, and `held` delays all responses until it is
    set.

    Requests must bear the user and password in `auth`. With `tls` the server accepts TLS only. `requests` records the
    method and the path of each.
    """

    def __init__(self, auth: tuple[str, str] | None = None, tls: ssl.SSLContext | None = None) -> None:
        self.auth = auth
        self._tls = tls
        self.indices: dict[str, Index] = {}
        self.requests: list[str] = []
        self.failing: int | None = None
        self.held: asyncio.Event | None = None
        self.refused_entries: dict[str, int] = {}  # statuses by the `id` of an entry
        self.most_at_once = 0
        self._at_once = 0
        self._runner: web.AppRunner | None = None
        self.port = 0

    @property
    def url(self) -> str:
        user = "" if self.auth is None else f"{self.auth[0]}:{self.auth[1]}@"
        return f"http://{user}127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Listen, on the previous port if there was one."""
        app = web.Application(middlewares=[self._middleware], client_max_size=64 * 1024 * 1024)
        app.add_routes(
            [
                web.get("/", self._info),
                web.get("/_alias/{name}", self._get_alias),
                web.post("/_bulk", self._bulk),
                web.post("/_aliases", self._update_aliases),
                web.put("/{index}", self._create),
                web.delete("/{index}", self._delete),
                web.post("/{index}/_search", self._search),
                web.post("/{index}/_count", self._count),
                web.post("/{index}/_refresh", self._refresh),
                web.get("/{index}/_mapping", self._get_mapping),
                web.put("/{index}/_mapping", self._put_mapping),
            ]
        )
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=self._tls)
        await site.start()
        self.port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]

    async def stop(self) -> None:
        """Close the port, so that it refuses connections."""
        assert self._runner is not None
        await self._runner.cleanup()

    @web.middleware
    async def _middleware(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.requests.append(f"{request.method} {request.path}")
        if self.auth is not None and request.headers.get("Authorization") != _basic(*self.auth):
            return _error(401, "security_exception")
        if self.failing is not None:
            return _error(self.failing, "failing")
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            if self.held is not None:
                await self.held.wait()
            response: web.StreamResponse = await handler(request)
            return response
        except SearchRefusal as refused:
            return _error(400, str(refused))
        finally:
            self._at_once -= 1

    async def _info(self, _: web.Request) -> web.Response:
        return web.json_response({"version": {"distribution": "stand-in", "number": "0"}})

    def _named(self, name: str) -> dict[str, Index]:
        """Return the indices with that alias, or the index of that name."""
        found = {index: one for index, one in self.indices.items() if name in one.aliases}
        return found or ({name: self.indices[name]} if name in self.indices else {})

    def _aliased(self, name: str) -> dict[str, Index]:
        return {index: one for index, one in self.indices.items() if name in one.aliases}

    async def _get_alias(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        found = self._aliased(name)
        if not found:
            return web.json_response({"error": f"alias [{name}] missing", "status": 404}, status=404)
        return web.json_response({index: {"aliases": {name: {}}} for index in found})

    async def _create(self, request: web.Request) -> web.Response:
        index, body = request.match_info["index"], await request.json()
        if index in self.indices:
            return _error(400, "resource_already_exists_exception")
        allow_only(body, {"settings", "mappings", "aliases"}, "the index")
        allow_only(body["settings"]["index"], SETTINGS, "the settings")
        Fields(body["mappings"])
        if index != index.lower() or index.startswith(("-", "_", "+")):
            return _error(400, "invalid_index_name_exception")
        self.indices[index] = Index(dict(body["mappings"]), set(body.get("aliases", {})))
        return web.json_response({"acknowledged": True})

    async def _delete(self, request: web.Request) -> web.Response:
        if self.indices.pop(request.match_info["index"], None) is None:
            return _error(404, "index_not_found_exception")
        return web.json_response({"acknowledged": True})

    async def _update_aliases(self, request: web.Request) -> web.Response:
        for action in (await request.json())["actions"]:
            ((kind, given),) = action.items()
            if kind == "remove_index":
                del self.indices[given["index"]]
            elif kind == "add":
                self.indices[given["index"]].aliases.add(given["alias"])
            else:
                self.indices[given["index"]].aliases.remove(given["alias"])
        return web.json_response({"acknowledged": True})

    async def _refresh(self, _: web.Request) -> web.Response:
        return web.json_response({"_shards": {"failed": 0}})

    async def _get_mapping(self, request: web.Request) -> web.Response:
        found = self._named(request.match_info["index"])
        return web.json_response({index: {"mappings": one.mappings} for index, one in found.items()})

    async def _put_mapping(self, request: web.Request) -> web.Response:
        for one in self._named(request.match_info["index"]).values():
            one.mappings.update(await request.json())
        return web.json_response({"acknowledged": True})

    async def _bulk(self, request: web.Request) -> web.Response:
        assert request.query["require_alias"] == "true"
        lines = [json.loads(line) for line in (await request.text()).splitlines()]
        items = [self._update(lines[at]["update"], lines[at + 1]) for at in range(0, len(lines), 2)]
        return web.json_response({"errors": any("error" in item for item in items), "items": _updates(items)})

    def _update(self, target: Mapping[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
        allow_only(target, {"_index", "_id", "retry_on_conflict"}, "the action")
        allow_only(body, {"scripted_upsert", "upsert", "script"}, "the update")
        allow_only(body["script"], {"lang", "source", "params"}, "the script")
        if len(target["_id"].encode()) > MOST_ID_BYTES or body["script"]["lang"] != "painless":
            return _refused_item(400, "illegal_argument_exception")
        found = list(self._aliased(target["_index"]).values())
        if not found:
            return _refused_item(404, "index_not_found_exception")
        if len(found) > 1:
            return _refused_item(400, "illegal_argument_exception")
        if (refusal := self.refused_entries.get(body["script"]["params"].get("entry", {}).get("id"))) is not None:
            return _refused_item(refusal, "refused")
        try:
            _run_update(found[0], target["_id"], body)
        except (ScriptError, SearchRefusal) as problem:
            return _refused_item(400, str(problem))
        return {"status": 200}

    async def _search(self, request: web.Request) -> web.Response:
        allow_only(request.query, {"allow_partial_search_results"}, "the request")
        found, body = self._named(request.match_info["index"]), await request.json()
        if not found:
            return _error(404, "index_not_found_exception")
        ((_, index),) = found.items()
        hits = search(Fields(index.mappings), list(index.documents.values()), body)
        return web.json_response({"hits": {"hits": hits}})

    async def _count(self, request: web.Request) -> web.Response:
        ((_, index),) = self._named(request.match_info["index"]).items()
        fields, query = Fields(index.mappings), (await request.json())["query"]
        count = sum(fields.score(query, one) is not None for one in index.documents.values())
        return web.json_response({"count": count})


@asynccontextmanager
async def search_server(
    auth: tuple[str, str] | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[SearchServer]:
    """Start a stand-in, and stop it at the end."""
    server = SearchServer(auth, tls)
    await server.start()
    try:
        yield server
    finally:
        if server.held is not None:
            server.held.set()
        await server.stop()


def _basic(user: str, password: str) -> str:
    return f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"


def _updates(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"update": item} for item in items]


def _error(status: int, kind: str) -> web.Response:
    return web.json_response({"error": {"type": kind, "root_cause": []}, "status": status}, status=status)


def _refused_item(status: int, kind: str) -> dict[str, Any]:
    return {"status": status, "error": {"type": kind}}


def _run_update(index: Index, id: str, body: Mapping[str, Any]) -> None:
    """Run the script of an update on a document, or on `upsert` if there is none.

    https://docs.opensearch.org/latest/api-reference/document-apis/update-document/
    """
    known = index.documents.get(id)
    if known is None and not body.get("scripted_upsert"):
        index.documents[id] = dict(body["upsert"])
        return
    ctx: dict[str, Any] = {
        "op": "create" if known is None else "index",
        "_source": json.loads(json.dumps(body["upsert"] if known is None else known)),
    }
    run_painless(body["script"]["source"], ctx, body["script"]["params"])
    if ctx["op"] in ("create", "index"):
        Fields(index.mappings).check(ctx["_source"])
        index.documents[id] = ctx["_source"]
    elif ctx["op"] == "delete":
        index.documents.pop(id, None)
    elif ctx["op"] not in ("none", "noop"):
        raise ScriptError(f"there is no operation {ctx['op']!r}")
