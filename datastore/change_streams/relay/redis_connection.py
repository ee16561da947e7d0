"""What the bus asks of Redis, with little patience: whoever waits has another way."""

import asyncio
from collections.abc import Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ResponseError

from datastore.change_streams.relay import lua as scripts
from datastore.change_streams.shards.checkpoints import Reached
from datastore.redis.failures import REDIS_AWAY

NAME = "gateway:bus"
PATIENCE_SECONDS = 1.0
# Patience is counted in so many turns of the loop: one that is held up loses one of them, not all.
TURNS = 4
LEASE_SECONDS = 10.0
# Longer than streams are polled by default: while changes come, no read returns without some.
BLOCK_SECONDS = 0.3
# The most entries of a table that one read returns. A read of more bytes, or one that times out, halves the number.
ENTRIES, PAGE_BYTES = 100, 4_000_000
# A process loads at most as many bytes of past changes as Redis keeps.
PAST_BYTES = scripts.BYTES_KEPT
CONNECTIONS = 8

T = TypeVar("T")


class BusUnavailable(Exception):
    """Redis does not answer, or answers something else than was asked for."""


class BusSlow(BusUnavailable):
    """Redis did not answer in time."""


class BusRefused(BusUnavailable):
    """Redis refuses a command: it is full or read-only, or the user has no right to the command."""


class RelayLeaseLost(Exception):
    """Another process holds the table, or none does: nothing was written."""


class UnexpectedPosition(Exception):
    """The position in Redis is not the one that the page follows: nothing was written."""


@dataclass(frozen=True, slots=True)
class RelayState:
    """A table's state in Redis: the holder of the lease, the epoch of its changes, and the relayed positions.

    `last_id` is the id of the last entry in Redis. `positions` are the positions of the shards after that entry, and
    `parents` the parents of those shards that have one. `changes` is the number of changes appended in the epoch.
    """

    lease: str
    last_id: str
    epoch: str
    stream: str
    attached_by: str
    changes: int
    positions: Mapping[str, str]
    parents: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_attached(self) -> bool:
        """Whether there is an epoch that the holder of the lease, or the next holder, continues."""
        return bool(self.epoch) and self.lease in ("", self.attached_by)

    def is_held_by(self, instance: str) -> bool:
        return self.lease.partition(":")[2] == instance


@dataclass(frozen=True, slots=True)
class Relayed:
    """Changes of a shard as Redis has them, one behind the other.

    `follows` is the shard's position before them; `before` is how many changes there were in the order, of all shards;
    `records` is a JSON list of the stream's.
    """

    id: str
    epoch: str
    shard: str
    follows: str
    before: int
    records: bytes
    parent: str | None = None


# Entries of a table in the order they were appended: what has no changes, is its fields.
Entry = Relayed | dict[bytes, bytes]


class RelayConnection:
    """To the bus at a `url` (redis://, rediss:// or unix://). All it does raises `BusUnavailable` when Redis fails."""

    def __init__(
        self, url: str, prefix: str, *, patience: float = PATIENCE_SECONDS, lease_seconds: float = LEASE_SECONDS
    ) -> None:
        self._patience = patience
        self._lease_ms = round(lease_seconds * 1000)
        self._count = ENTRIES
        # One slot of a cluster has them all: one XREAD is for all tables.
        self._tag = f"{{{NAME}:{prefix}}}"
        pool: Any = BlockingConnectionPool.from_url(
            url,
            max_connections=CONNECTIONS,
            timeout=2 * patience,
            socket_timeout=None,  # XREAD waits, and who asks keeps the time
            socket_connect_timeout=2 * patience,
            retry=Retry(NoBackoff(), 0),
        )
        self._redis: Any = Redis.from_pool(pool)
        self._claim = self._redis.register_script(scripts.CLAIM)
        self._begin = self._redis.register_script(scripts.BEGIN)
        self._attach = self._redis.register_script(scripts.ATTACH)
        self._append = self._redis.register_script(scripts.APPEND)
        self._release = self._redis.register_script(scripts.RELEASE)
        self._probe = self._redis.register_script(scripts.PROBE)

    async def aclose(self) -> None:
        await self._redis.aclose()

    async def probe(self) -> None:
        """Whether Redis does all that is asked of it here, by a new connection: the address may lead elsewhere now."""
        await self._with_timeout(self._redis.connection_pool.disconnect(inuse_connections=False))
        await self._run(self._probe, "", [])
        await self._with_timeout(self._redis.xread({self._keys("")[2]: "0-0"}, count=1))

    async def claim(
        self,
        table: str,
        instance: str,
        *,
        wanted: bool = True,
        idle: Reached | None = None,
    ) -> RelayState:
        """How the table stands, its lease renewed, or taken if it is free and `wanted`.

        `idle` are positions of shards without a record yet, which move on.
        """
        arguments = [instance, self._lease_ms, int(wanted), *([] if idle is None else _flat(idle))]
        lease, last_id, state = await self._run(self._claim, table, arguments)
        found = dict(zip(state[::2], state[1::2], strict=True))
        return RelayState(
            lease=_text(lease),
            last_id=_text(last_id),
            epoch=_text(found.get(b"epoch", b"")),
            stream=_text(found.get(b"stream", b"")),
            attached_by=_text(found.get(b"by", b"")),
            changes=int(found.get(b"changes", 0)),
            positions=_named(found, b"p:"),
            parents=_named(found, b"f:"),
        )

    async def begin(self, table: str, lease: str, epoch: str, reached: Reached) -> None:
        """Begin a new order, from these positions on. Raises `RelayLeaseLost`."""
        if not await self._run(self._begin, table, [lease, epoch, reached.stream, *_flat(reached)]):
            raise RelayLeaseLost

    async def attach(self, table: str, lease: str, epoch: str) -> None:
        """Tell that whoever has the lease goes on with the order. Raises `RelayLeaseLost`."""
        if not await self._run(self._attach, table, [lease, epoch]):
            raise RelayLeaseLost

    async def append(
        self,
        table: str,
        lease: str,
        epoch: str,
        shard: str,
        follows: str,
        records: Sequence[tuple[str, bytes]],
        *,
        parent: str | None = None,
    ) -> int:
        """Append a page's records, each behind its sequence number, but for those that are there; how many were new.

        Raises `RelayLeaseLost`, and `UnexpectedPosition` when the page follows something else than what was appended
        last.
        """
        arguments = [lease, epoch, shard, follows, parent or "", *(part for record in records for part in record)]
        appended: int = await self._run(self._append, table, arguments)
        if appended == -1:
            raise RelayLeaseLost
        if appended == -2:
            raise UnexpectedPosition
        return appended

    async def forget(self, table: str, shards: Collection[str]) -> None:
        """No positions of shards that the stream lists no longer."""
        fields = [f"{kind}:{shard}" for shard in shards for kind in "pf"]
        await self._with_timeout(self._redis.hdel(self._keys(table)[1], *fields))

    async def release(self, table: str, lease: str) -> None:
        await self._run(self._release, table, [lease])

    async def read(self, places: Mapping[str, str]) -> dict[str, list[tuple[str, Entry]]]:
        """What comes in each table after an id: at once, or as soon as there is some, or nothing after a while."""
        keys = {self._keys(table)[2]: table for table in places}
        streams = {key: places[table] for key, table in keys.items()}
        block = round(BLOCK_SECONDS * 1000)
        count = self._count
        page = await self._call_paged(self._redis.xread(streams, count=count, block=block), BLOCK_SECONDS)
        pages = {keys[_text(key)]: _entries(entries) for key, entries in _pairs(page)}
        if sum(_size(entry) for page in pages.values() for _, entry in page) > PAGE_BYTES:
            self._halve_page_size()
        elif any(len(page) == count for page in pages.values()):
            self._count = min(ENTRIES, self._count + 1)
        return pages

    async def past(self, table: str, since_ms: int, last_id: str) -> list[Entry]:
        """What came since a moment, up to an id, as far as `PAST_BYTES` go back; what came last in any case."""
        key = self._keys(table)[2]
        found = _entries(await self._with_timeout(self._redis.xrevrange(key, last_id, "-", count=1)))
        held, is_more = sum(_size(entry) for _, entry in found), bool(found)
        while is_more and milliseconds(found[-1][0]) >= since_ms:
            count = self._count
            page = await self._call_paged(self._redis.xrevrange(key, f"({found[-1][0]}", since_ms, count=count))
            is_more = len(page) == count
            for entry_id, entry in _entries(page):
                held += _size(entry)
                if held > PAST_BYTES:
                    is_more = False
                    break
                found.append((entry_id, entry))
        return [entry for _, entry in reversed(found)]

    def _keys(self, table: str) -> list[str]:
        return [f"{self._tag}{table}:{kind}" for kind in ("lease", "state", "changes")]

    async def _run(self, script: Any, table: str, arguments: Sequence[Any]) -> Any:
        return await self._with_timeout(script(keys=self._keys(table), args=arguments))

    async def _call_paged(self, request: Coroutine[Any, Any, T], more: float = 0.0) -> T:
        try:
            return await self._with_timeout(request, more)
        except BusSlow:
            self._halve_page_size()
            raise

    def _halve_page_size(self) -> None:
        """Entries of a page, from the next one on."""
        self._count = max(1, self._count // 2)

    async def _with_timeout(self, request: Coroutine[Any, Any, T], more: float = 0.0) -> T:
        task = asyncio.ensure_future(request)
        try:
            for _ in range(TURNS):
                if (await asyncio.wait((task,), timeout=(self._patience + more) / TURNS))[0]:
                    return task.result()
            raise BusSlow("Redis is too slow.")
        except ResponseError as problem:
            raise BusRefused(f"{type(problem).__name__}: {problem}") from problem
        except REDIS_AWAY as problem:
            raise BusUnavailable(f"{type(problem).__name__}: {problem}") from problem
        finally:
            task.cancel()


def later(one: str, other: str) -> bool:
    """Whether one id comes behind another."""
    return _numbers(one) > _numbers(other)


def milliseconds(entry_id: str) -> int:
    """When Redis took an entry, in milliseconds since 1970."""
    return _numbers(entry_id)[0]


def _numbers(entry_id: str) -> tuple[int, int]:
    moment, _, number = entry_id.partition("-")
    return int(moment), int(number or 0)


def _pairs(page: Any) -> list[tuple[bytes, Any]]:
    """redis-py answers a list for RESP2, and a dict for RESP3, whose values lie one list deeper."""
    if isinstance(page, dict):
        return [(key, [entry for batch in batches for entry in batch]) for key, batches in page.items()]
    return list(page or ())


def _entries(page: Any) -> list[tuple[str, Entry]]:
    return [(_text(entry_id), _entry(_text(entry_id), fields or {})) for entry_id, fields in page]


def _entry(entry_id: str, fields: dict[bytes, bytes]) -> Entry:
    parts = fields.get(b"c", b"").split(b"\n", 4)
    before = parts[3].partition(b" ")[0] if len(parts) == 5 else b""
    if not before.isdigit():
        return fields
    epoch, shard, follows = map(_text, parts[:3])
    return Relayed(entry_id, epoch, shard, follows, int(before), parts[4], _text(fields.get(b"f", b"")) or None)


def _size(entry: Entry) -> int:
    return len(entry.records) if isinstance(entry, Relayed) else sum(map(len, entry.values()))


def _flat(reached: Reached) -> list[str]:
    """Shards, positions and parents."""
    return [part for id, at in reached.shards.items() for part in (id, at, reached.parents.get(id) or "")]


def _named(found: Mapping[bytes, bytes], prefix: bytes) -> dict[str, str]:
    """Return the fields whose names begin with the prefix, by the rest of their names."""
    return {_text(key[len(prefix) :]): _text(value) for key, value in found.items() if key.startswith(prefix)}


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace")
