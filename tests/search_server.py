"""A stand-in for OpenSearch: an HTTP server that speaks the part of its REST API that the search index uses.

It is no OpenSearch: it checks what a request says against what this project sends, and answers as the documentation has
it. Whether an OpenSearch takes the same requests, only one can tell: set `OPENSEARCH_URL` to run the tests on it.
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

from datastore.search.opensearch_queries import MAPPING, NEWER

Document = dict[str, Any]


@dataclass
class Index:
    """An index by its name: documents by id, and the names of its aliases."""

    mappings: dict[str, Any]
    aliases: set[str] = field(default_factory=set)
    documents: dict[str, Document] = field(default_factory=dict)


class SearchServer:
    """The stand-in, at `url`. `failing` is a status that it answers everything with, and `held` holds all answers up.

    `auth` is the user and the password that requests must bear; with `tls` it speaks TLS alone. `requests` notes the
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
        """Close the port: connecting is refused from now on."""
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
        finally:
            self._at_once -= 1

    async def _info(self, _: web.Request) -> web.Response:
        return web.json_response({"version": {"distribution": "stand-in", "number": "0"}})

    def _named(self, name: str) -> dict[str, Index]:
        """The indices that an alias names, or the index of that name."""
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
        assert body["mappings"] == MAPPING
        assert index == index.lower()
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
        found = list(self._aliased(target["_index"]).values())
        assert len(target["_id"].encode()) <= 512
        assert body["scripted_upsert"] is True
        assert body["upsert"] == {}
        assert body["script"] | {"params": None} == {"lang": "painless", "source": NEWER, "params": None}
        entry = body["script"]["params"]["entry"]
        assert entry.keys() == MAPPING["properties"].keys()  # type: ignore[attr-defined]
        assert -(2**63) <= entry["order"] < 2**63
        if not found:
            return {"status": 404, "error": {"type": "index_not_found_exception"}}
        if len(found) > 1:
            return {"status": 400, "error": {"type": "illegal_argument_exception"}}
        if entry["id"] in self.refused_entries:
            return {"status": self.refused_entries[entry["id"]], "error": {"type": "refused"}}
        known = found[0].documents.get(target["_id"])
        if known is None or known["version"] < entry["version"]:
            found[0].documents[target["_id"]] = entry
        return {"status": 200}

    async def _search(self, request: web.Request) -> web.Response:
        assert request.query["allow_partial_search_results"] == "false"
        found, body = self._named(request.match_info["index"]), await request.json()
        if not found:
            return _error(404, "index_not_found_exception")
        assert body["sort"] == [{"_score": "desc"}, {"order": "desc"}, {"id": "asc"}]
        ((_, index),) = found.items()
        scored = [(_score(body["query"], one), one) for one in index.documents.values()]
        ranked = sorted(
            [(-score, -one["order"], one["id"], one) for score, one in scored if score is not None], key=_place
        )
        after = body.get("search_after")
        if after is not None:
            ranked = [one for one in ranked if one[:3] > (-after[0], -after[1], after[2])]
        hits = [
            {"sort": [float(-score), -order, id], "_source": {name: one[name] for name in body["_source"]}}
            for score, order, id, one in ranked[: body["size"]]
        ]
        return web.json_response({"hits": {"hits": hits}})

    async def _count(self, request: web.Request) -> web.Response:
        ((_, index),) = self._named(request.match_info["index"]).items()
        query = (await request.json())["query"]
        return web.json_response({"count": sum(_score(query, one) is not None for one in index.documents.values())})


@asynccontextmanager
async def search_server(
    auth: tuple[str, str] | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[SearchServer]:
    """A stand-in that listens."""
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


def _place(one: tuple[int, int, str, Document]) -> tuple[int, int, str]:
    return one[:3]


def _updates(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"update": item} for item in items]


def _error(status: int, kind: str) -> web.Response:
    return web.json_response({"error": {"type": kind, "root_cause": []}, "status": status}, status=status)


def _score(query: Mapping[str, Any], document: Document) -> int | None:
    """The score of a document, None where it does not match."""
    ((kind, given),) = query.items()
    if kind == "constant_score":
        return None if _score(given["filter"], document) is None else int(given["boost"])
    if kind == "bool":
        return _score_of_bool(given, document)
    ((name, said),) = given.items()
    held = document[name]
    words = held.split(" ") if name in ("words", "tags") else [held]
    value = said["value"] if isinstance(said, dict) else said
    matches = {
        "term": lambda: value in words,
        "terms": lambda: not set(value).isdisjoint(words),
        "prefix": lambda: any(word.startswith(value) for word in words),
        "match_phrase": lambda: f" {value} " in f" {' '.join(words)} ",
    }
    return 0 if matches[kind]() else None


def _score_of_bool(given: Mapping[str, Any], document: Document) -> int | None:
    if any(_score(one, document) is None for one in given.get("filter", [])):
        return None
    if any(_score(one, document) is not None for one in given.get("must_not", [])):
        return None
    optional = [_score(one, document) for one in given.get("should", [])]
    if sum(one is not None for one in optional) < given.get("minimum_should_match", 0):
        return None
    return sum(one for one in optional if one is not None)
