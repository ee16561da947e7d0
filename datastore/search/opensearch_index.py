"""The search index in OpenSearch, for gateways on several hosts.

One OpenSearch index holds posts and users. The alias BASE names the index that searches use, BASE-building the index
that a rebuild fills. All writes go through aliases (`require_alias`), so a late write cannot recreate a deleted index.
https://docs.opensearch.org/latest/api-reference/
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from functools import cached_property
from hashlib import sha256
from typing import Any, TypeVar
from uuid import uuid4

import opensearchpy
from msgspec.structs import asdict
from opensearchpy.exceptions import ConnectionError, ConnectionTimeout, NotFoundError, TransportError

from datastore.dynamodb.retry.circuit_breaker import BreakerConfig, CircuitBreaker
from datastore.errors import Internal, Throttled, Unavailable
from datastore.model.timestamps import from_iso, iso
from datastore.search import Audience, BuildReplaced, Kind, Position, SearchEntry, SearchHit, Status
from datastore.search.opensearch_queries import MAPPING, SETTINGS, UPSERT, search_body
from datastore.search.queries import Query

T = TypeVar("T")

SEARCH_SECONDS, WRITE_SECONDS = 2.0, 20.0
MAX_CONCURRENCY = 16
CHUNK_SIZE = 200  # entries in one request: at most four megabytes
UNAVAILABLE = "Search is not available at the moment; try again."
MISSING = 404
TOO_MANY_REQUESTS = 429

logger = logging.getLogger(__name__)


class OpenSearchIndex:
    """The index at a URL, which may hold a user and a password. `prefix` is the prefix of the tables' names.

    At most 16 requests run at a time. While the host does not respond, a circuit breaker refuses calls at once.
    """

    def __init__(self, url: str, prefix: str, *, terms: BreakerConfig = BreakerConfig(failures=3)) -> None:  # noqa: B008 - frozen
        self._url = url
        self._base = f"gateway-{prefix}search".lower()
        self._building = f"{self._base}-building"
        self._slots = asyncio.Semaphore(MAX_CONCURRENCY)
        self._breaker = CircuitBreaker(self._probe, terms)
        self._has_client = False

    async def write(self, kind: Kind, entries: Sequence[SearchEntry]) -> None:
        # The changes are already in the table, so a rebuild that begins after this check scans them.
        building = await self._call(lambda client: client.indices.exists_alias(name=self._building))
        aliases = [self._base, self._building] if building else [self._base]
        for start in range(0, len(entries), CHUNK_SIZE):
            chunk = entries[start : start + CHUNK_SIZE]
            if self._base in await self._upsert(kind, chunk, aliases):
                await self._create_first()
                if await self._upsert(kind, chunk, [self._base]):
                    raise Unavailable(UNAVAILABLE)

    async def search(
        self, kind: Kind, query: Query, limit: int, after: Position | None = None, audience: Audience | None = None
    ) -> list[SearchHit]:
        body = search_body(kind, query, limit, after, audience)
        try:
            response = await self._call(
                lambda client: client.search(
                    index=self._base, body=body, params={"allow_partial_search_results": "false"}
                ),
                SEARCH_SECONDS,
            )
        except NotFoundError:
            return []  # no index exists before the first write
        return [_hit(hit) for hit in response["hits"]["hits"]]

    async def begin_rebuild(self) -> str:
        build = uuid4().hex
        for index in await self._indices_of(self._building):
            await self._call(lambda client, index=index: client.indices.delete(index=index))  # type: ignore[misc]
        await self._create(build, {self._building: {}, self._filling(build): {}})
        return build

    async def fill(self, build: str, kind: Kind, entries: Sequence[SearchEntry]) -> None:
        for start in range(0, len(entries), CHUNK_SIZE):
            if await self._upsert(kind, entries[start : start + CHUNK_SIZE], [self._filling(build)]):
                raise BuildReplaced

    async def finish_rebuild(self, build: str, source: str, now: datetime) -> None:
        index = self._index(build)
        if await self._indices_of(self._building) != [index]:
            raise BuildReplaced
        meta = {"_meta": {"source": source, "built_at": iso(now)}}
        await self._call(lambda client: client.indices.put_mapping(index=index, body=meta))
        await self._call(lambda client: client.indices.refresh(index=index))
        actions: list[dict[str, Any]] = [
            {"remove_index": {"index": old}} for old in await self._indices_of(self._base) if old != index
        ]
        actions += [{"remove": {"index": index, "alias": alias}} for alias in (self._building, self._filling(build))]
        actions.append({"add": {"index": index, "alias": self._base}})
        await self._call(lambda client: client.indices.update_aliases(body={"actions": actions}))

    async def status(self) -> Status:
        indices = await self._indices_of(self._base)
        building = await self._indices_of(self._building)
        build = building[0].removeprefix(f"{self._base}-") if building else None
        if not indices:
            return Status(dict.fromkeys(Kind, 0), building=build)
        mapping = await self._call(lambda client: client.indices.get_mapping(index=indices[0]))
        meta = mapping[indices[0]]["mappings"].get("_meta", {})
        entries = {kind: await self._count(indices[0], kind) for kind in Kind}
        built_at = meta.get("built_at")
        return Status(entries, meta.get("source"), from_iso(built_at) if built_at else None, build)

    async def refresh(self) -> None:
        """Make written entries searchable at once instead of within a second."""
        await self._call(lambda client: client.indices.refresh(index=self._base))

    async def aclose(self) -> None:
        self._breaker.stop()
        if self._has_client:
            await self._client.close()

    # Requests

    @cached_property
    def _client(self) -> opensearchpy.AsyncOpenSearch:
        # Silence the client's log: it reports every request, and failures that this module reports itself.
        logging.getLogger("opensearch").setLevel(logging.CRITICAL)
        self._has_client = True
        return opensearchpy.AsyncOpenSearch(
            hosts=[self._url], timeout=WRITE_SECONDS, max_retries=0, maxsize=MAX_CONCURRENCY, http_compress=False
        )

    async def _probe(self, seconds: float) -> bool:
        try:
            await self._client.info(params={"request_timeout": seconds})
        except ConnectionError:
            return False
        except TransportError:
            return True
        return True

    async def _call(
        self,
        send: Callable[[opensearchpy.AsyncOpenSearch], Awaitable[T]],
        seconds: float = WRITE_SECONDS,
    ) -> T:
        """Send a request and return the response. Raises `NotFoundError`, `Unavailable`, `Throttled` or `Internal`."""
        loop = asyncio.get_running_loop()
        if self._breaker.tripped and not await self._breaker.wait(loop.time() + seconds):
            raise Unavailable(UNAVAILABLE)
        sent = loop.time()
        try:
            async with asyncio.timeout(seconds), self._slots:
                sent = loop.time()
                response = await send(self._client)
        except (ConnectionTimeout, TimeoutError) as problem:
            self._breaker.record_failure(sent, timed_out=True)
            raise Unavailable(UNAVAILABLE) from problem
        except ConnectionError as problem:
            self._breaker.record_failure(sent)
            raise Unavailable(UNAVAILABLE) from problem
        except TransportError as problem:
            self._breaker.record_answer()
            raise _refusal(problem) from problem
        self._breaker.record_answer()
        return response

    async def _upsert(self, kind: Kind, entries: Sequence[SearchEntry], aliases: Sequence[str]) -> set[str]:
        """Write entries through aliases. Return the aliases that name no index.

        Raises `Unavailable` or `Throttled` if a retry may succeed, and `Internal` if the host refused an entry.
        """
        body: list[dict[str, Any]] = []
        for entry in entries:
            document = {"kind": kind.value, **asdict(entry)}
            for alias in aliases:
                body += [
                    {"update": {"_index": alias, "_id": _id(kind, entry.id), "retry_on_conflict": 5}},
                    UPSERT | {"script": UPSERT["script"] | {"params": {"entry": document}}},
                ]
        response = await self._call(lambda client: client.bulk(body=body, params={"require_alias": "true"}))
        missing: set[str] = set()
        if response["errors"]:
            for number, outcome in enumerate(response["items"]):
                result = outcome["update"]
                if "error" in result:
                    alias = aliases[number % len(aliases)]
                    _check_item(result, optional=alias == self._building)
                    missing.add(alias)
        return missing - {self._building}

    async def _create_first(self) -> None:
        """Create the index, unless another process has done so."""
        try:
            await self._create("first", {self._base: {}})
        except Internal:
            if not await self._indices_of(self._base):
                raise

    async def _create(self, name: str, aliases: dict[str, Any]) -> None:
        body = {"settings": SETTINGS, "mappings": MAPPING, "aliases": aliases}
        await self._call(lambda client: client.indices.create(index=self._index(name), body=body))

    async def _indices_of(self, alias: str) -> list[str]:
        try:
            found: Iterable[str] = await self._call(lambda client: client.indices.get_alias(name=alias))
        except NotFoundError:
            return []
        return sorted(found)

    async def _count(self, index: str, kind: Kind) -> int:
        only = [{"term": {"kind": kind.value}}, {"term": {"removed": False}}]
        body = {"query": {"bool": {"filter": only}}}
        response = await self._call(lambda client: client.count(index=index, body=body))
        return int(response["count"])

    def _index(self, build: str) -> str:
        return f"{self._base}-{build}"

    def _filling(self, build: str) -> str:
        return f"{self._base}-{build}-filling"


def _refusal(problem: TransportError) -> Exception:
    status = problem.status_code
    if status == MISSING:
        return problem
    logger.warning("The search host refused a request: %s %s", status, problem.error)
    # The operator has to correct the password or its permissions. Until then search is unavailable.
    return _error(status, "a request", unavailable=(401, 403))


def _check_item(result: dict[str, Any], *, optional: bool) -> None:
    """Raise the error of one item of a bulk request, unless its alias names no index.

    An `optional` alias may name no index, or two for a moment, while a rebuild begins or ends.
    """
    status = result["status"]
    if status == MISSING or (optional and status == 400):
        return
    logger.warning("The search host refused an entry: %s %s", status, result["error"].get("type"))
    raise _error(status, "an entry", unavailable=(409,))


def _error(status: Any, refused: str, unavailable: Sequence[int]) -> Exception:
    if status == TOO_MANY_REQUESTS:
        return Throttled("Search is overloaded at the moment; try again.")
    if status in unavailable or (isinstance(status, int) and status >= 500):
        return Unavailable(UNAVAILABLE)
    return Internal(f"The search host refused {refused}.")


def _id(kind: Kind, id: str) -> str:
    """Return the document's id. OpenSearch allows 512 bytes, which the id of a user may exceed."""
    return sha256(f"{kind}:{id}".encode()).hexdigest()


def _hit(found: dict[str, Any]) -> SearchHit:
    score, order, id = found["sort"]
    source = found["_source"]
    return SearchHit(Position(round(score), order, id), source["author"], source["visibility"])
