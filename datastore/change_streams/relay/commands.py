"""The Redis commands of the bus. Their timeouts are short, since a process can read tables' streams instead."""

import asyncio
from collections.abc import Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from redis.exceptions import ResponseError

from datastore.change_streams.relay import lua as scripts
from datastore.change_streams.shards.checkpoints import Reached
from datastore.redis.client import REDIS_AWAY, redis_client

NAME = "gateway:bus"
TIMEOUT_SECONDS = 1.0
# A timeout is waited in this many parts: a blocked event loop uses up one of them, not all.
TIMEOUT_PARTS = 4
LEASE_SECONDS = 10.0
# Longer than the default poll interval of streams, so that reads return changes while there are any.
BLOCK_SECONDS = 0.3
# The maximum number of entries of a table in one read, and the bytes of all entries of a read above which the next read
# asks for half as many entries. A read that times out has the same effect. Each full page adds one entry again.
ENTRIES, PAGE_BYTES = 100, 4_000_000
# A process loads at most as many bytes of past changes as Redis stores.
PAST_BYTES = scripts.MAX_BYTES
CONNECTIONS = 8

T = TypeVar("T")


class BusUnavailable(Exception):
    """Redis does not respond, or responds unexpectedly."""


class BusSlow(BusUnavailable):
    """Redis did not respond in time."""


class BusRefused(BusUnavailable):
    """Redis refuses a command: it is full or read-only, or the user lacks the permission."""


class RelayLeaseLost(Exception):
    """The lease of the table is free, or another process holds it. Nothing was written."""


class UnexpectedPosition(Exception):
    """The page does not follow the position that is stored in Redis. Nothing was written."""


@dataclass(frozen=True, slots=True)
class RelayState:
    """A table's state in Redis: the holder of the lease, the epoch of its changes, and the relayed positions."""

    #: `fence:instance`; "" if the lease is free.
    lease: str
    #: The id of the last entry.
    last_id: str
    #: The id of the current order of changes; "" if there is none.
    epoch: str
    #: The ARN of the stream.
    stream: str
    #: The lease of the last process that continued the epoch.
    continued_by: str
    #: The number of changes appended in the epoch.
    changes: int
    #: The positions of the shards after the last entry.
    positions: Mapping[str, str]
    #: The parents of the shards that have one.
    parents: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_live_epoch(self) -> bool:
        """Whether there is an epoch that the holder of the lease, or the next holder, continues."""
        return bool(self.epoch) and self.lease in ("", self.continued_by)

    def is_held_by(self, instance: str) -> bool:
        return self.lease.partition(":")[2] == instance


@dataclass(frozen=True, slots=True)
class Relayed:
    """An entry of successive changes of a shard."""

    id: str
    epoch: str
    shard: str
    #: The shard's position before the changes.
    follows_position: str
    #: The number of earlier changes in the epoch, of all shards.
    changes_before: int
    #: The stream's records as a JSON list.
    records: bytes
    #: The parent of the shard, if it has one.
    parent: str | None = None


# An entry of a table. An entry in another form (a wake-up, or written by another program) is its raw fields.
Entry = Relayed | dict[bytes, bytes]


class RelayCommands:
    """The Redis commands of the bus at a `url` (redis://, rediss:// or unix://), over up to `CONNECTIONS` connections.

    All methods may raise `BusUnavailable`, besides the errors that they name.
    """

    def __init__(
        self, url: str, prefix: str, *, timeout_seconds: float = TIMEOUT_SECONDS, lease_seconds: float = LEASE_SECONDS
    ) -> None:
        self._timeout_seconds = timeout_seconds
        self._lease_ms = round(lease_seconds * 1000)
        self._count = ENTRIES
        # All keys are in one slot of a cluster, since one XREAD reads all tables.
        self._tag = f"{{{NAME}:{prefix}}}"
        # Reads have no limit here: XREAD blocks, and `_with_timeout` limits it.
        self._redis = redis_client(url, connections=CONNECTIONS, seconds=2 * timeout_seconds, read_seconds=None)
        # The registered scripts, by their text.
        self._scripts: dict[str, Any] = {}

    async def aclose(self) -> None:
        await self._redis.aclose()

    async def probe(self) -> None:
        """Run all commands of the bus on a new connection, since the address may resolve to another host now."""
        await self._with_timeout(self._redis.connection_pool.disconnect(inuse_connections=False))
        await self._run(scripts.PROBE, "", [])
        await self._with_timeout(self._redis.xread({self._keys("")[2]: "0-0"}, count=1))

    async def claim(
        self,
        table: str,
        instance: str,
        *,
        may_claim: bool = True,
        idle: Reached | None = None,
    ) -> RelayState:
        """Renew the lease, or claim it if it is free and `may_claim`, and return the table's state.

        `idle` are the present positions of shards without a record.
        """
        arguments = [instance, self._lease_ms, int(may_claim), *([] if idle is None else _flat(idle))]
        lease, last_id, state = await self._run(scripts.CLAIM, table, arguments)
        found = dict(zip(state[::2], state[1::2], strict=True))
        return RelayState(
            lease=_text(lease),
            last_id=_text(last_id),
            epoch=_text(found.get(b"epoch", b"")),
            stream=_text(found.get(b"stream", b"")),
            continued_by=_text(found.get(b"by", b"")),
            changes=int(found.get(b"changes", 0)),
            positions=_named(found, b"p:"),
            parents=_named(found, b"f:"),
        )

    async def begin(self, table: str, lease: str, epoch: str, reached: Reached) -> None:
        """Begin an epoch at these positions. Raises `RelayLeaseLost`."""
        if not await self._run(scripts.BEGIN, table, [lease, epoch, reached.stream, *_flat(reached)]):
            raise RelayLeaseLost

    async def continue_epoch(self, table: str, lease: str, epoch: str) -> None:
        """Record that the holder of the lease continues the epoch. Raises `RelayLeaseLost`."""
        if not await self._run(scripts.CONTINUE, table, [lease, epoch]):
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
        """Append the records of a page (sequence number and content) that are new, and return their number.

        Raises: `RelayLeaseLost`, and `UnexpectedPosition` if the page does not follow the stored position.
        """
        arguments = [lease, epoch, shard, follows, parent or "", *(part for record in records for part in record)]
        appended: int = await self._run(scripts.APPEND, table, arguments)
        if appended == -1:
            raise RelayLeaseLost
        if appended == -2:
            raise UnexpectedPosition
        return appended

    async def forget(self, table: str, shards: Collection[str]) -> None:
        """Delete the positions of shards that the stream no longer lists."""
        fields = [f"{kind}:{shard}" for shard in shards for kind in "pf"]
        await self._with_timeout(self._redis.hdel(self._keys(table)[1], *fields))

    async def release(self, table: str, lease: str) -> None:
        await self._run(scripts.RELEASE, table, [lease])

    async def read(self, after: Mapping[str, str]) -> dict[str, list[tuple[str, Entry]]]:
        """Return the next entries of each table. Wait up to `BLOCK_SECONDS` for the first one.

        `after` is the id of the last entry read, by table.
        """
        keys = {self._keys(table)[2]: table for table in after}
        streams = {key: after[table] for key, table in keys.items()}
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
        """Return the entries since a time up to an id, of at most `PAST_BYTES` in total; the last one in any case."""
        key = self._keys(table)[2]
        found = _entries(await self._with_timeout(self._redis.xrevrange(key, last_id, "-", count=1)))
        total, is_more = sum(_size(entry) for _, entry in found), bool(found)
        while is_more and entry_time_ms(found[-1][0]) >= since_ms:
            count = self._count
            page = await self._call_paged(self._redis.xrevrange(key, f"({found[-1][0]}", since_ms, count=count))
            is_more = len(page) == count
            for entry_id, entry in _entries(page):
                total += _size(entry)
                if total > PAST_BYTES:
                    is_more = False
                    break
                found.append((entry_id, entry))
        return [entry for _, entry in reversed(found)]

    def _keys(self, table: str) -> list[str]:
        return [f"{self._tag}{table}:{kind}" for kind in ("lease", "state", "changes")]

    async def _run(self, script: str, table: str, arguments: Sequence[Any]) -> Any:
        if script not in self._scripts:
            self._scripts[script] = self._redis.register_script(script)
        return await self._with_timeout(self._scripts[script](keys=self._keys(table), args=arguments))

    async def _call_paged(self, request: Coroutine[Any, Any, T], more: float = 0.0) -> T:
        try:
            return await self._with_timeout(request, more)
        except BusSlow:
            self._halve_page_size()
            raise

    def _halve_page_size(self) -> None:
        """Halve the number of entries of the next pages."""
        self._count = max(1, self._count // 2)

    async def _with_timeout(self, request: Coroutine[Any, Any, T], more: float = 0.0) -> T:
        task = asyncio.ensure_future(request)
        try:
            for _ in range(TIMEOUT_PARTS):
                if (await asyncio.wait((task,), timeout=(self._timeout_seconds + more) / TIMEOUT_PARTS))[0]:
                    return task.result()
            raise BusSlow("Redis did not respond in time.")
        except ResponseError as problem:
            raise BusRefused(f"{type(problem).__name__}: {problem}") from problem
        except REDIS_AWAY as problem:
            raise BusUnavailable(f"{type(problem).__name__}: {problem}") from problem
        finally:
            task.cancel()


def is_later_id(entry_id: str, other: str) -> bool:
    """Return whether the first id is later than the second."""
    return _numbers(entry_id) > _numbers(other)


def entry_time_ms(entry_id: str) -> int:
    """Return the time of an entry in milliseconds since 1970."""
    return _numbers(entry_id)[0]


def _numbers(entry_id: str) -> tuple[int, int]:
    moment, _, number = entry_id.partition("-")
    return int(moment), int(number or 0)


def _pairs(page: Any) -> list[tuple[bytes, Any]]:
    """Return pairs of key and entries. redis-py returns a list for RESP2, and for RESP3 a dict of nested lists."""
    if isinstance(page, dict):
        return [(key, [entry for batch in batches for entry in batch]) for key, batches in page.items()]
    return list(page or ())


def _entries(page: Any) -> list[tuple[str, Entry]]:
    return [(_text(entry_id), _entry(_text(entry_id), fields or {})) for entry_id, fields in page]


def _entry(entry_id: str, fields: dict[bytes, bytes]) -> Entry:
    """Parse an entry. The field `c` is epoch, shard, position, totals and records, by line; `f` is the parent.

    See `lua.APPEND`. The totals are the changes and bytes appended before.
    """
    parts = fields.get(b"c", b"").split(b"\n", 4)
    before = parts[3].partition(b" ")[0] if len(parts) == 5 else b""
    if not before.isdigit():
        return fields
    epoch, shard, follows = map(_text, parts[:3])
    return Relayed(entry_id, epoch, shard, follows, int(before), parts[4], _text(fields.get(b"f", b"")) or None)


def _size(entry: Entry) -> int:
    return len(entry.records) if isinstance(entry, Relayed) else sum(map(len, entry.values()))


def _flat(reached: Reached) -> list[str]:
    """Return the shards, positions and parents as one list."""
    return [part for id, at in reached.shards.items() for part in (id, at, reached.parents.get(id) or "")]


def _named(found: Mapping[bytes, bytes], prefix: bytes) -> dict[str, str]:
    """Return the fields whose names begin with the prefix, by the rest of their names."""
    return {_text(key[len(prefix) :]): _text(value) for key, value in found.items() if key.startswith(prefix)}


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace")
