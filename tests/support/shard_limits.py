"""AWS's limits of one shard, which the embedded engine lacks. Proxies that share an object enforce them."""

import asyncio
import json
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web

from tests.support.fault_proxy import Fault, Proxy, Seen, refuse

READS_PER_SECOND = 5
BYTES_PER_SECOND = 2_000_000
READERS = 2
# Readers count as simultaneous when they read within the same slot.
SLOT_SECONDS = 1 / READS_PER_SECOND
THROTTLED = refuse(400, "LimitExceededException")


@dataclass
class AnsweredRead:
    """An answered read and its size in bytes."""

    moment: float
    reader: str
    size: int = 0


class ShardLimits:
    """Limits of each shard: five reads and 2 MB a second, by at most two readers at a time. Further reads are
    throttled.

    `read` counts the successful reads of each reader, `throttled` the refused ones.
    """

    def __init__(self) -> None:
        self.read: Counter[str] = Counter()
        self.throttled: Counter[str] = Counter()
        self._shards: dict[str, str] = {}  # by iterator
        self._reads: dict[str, deque[AnsweredRead]] = {}

    def of(self, reader: str) -> Fault:
        """Return the fault that applies the limits to one reader, for `Proxy.always`."""

        async def answer(proxy: Proxy, seen: Seen) -> web.StreamResponse:
            if seen.operation != "GetRecords":
                return await self._pass(proxy, seen, seen.body.get("ShardId"))
            shard = self._shards[seen.body["ShardIterator"]]
            if self._exceeds(shard, reader):
                self.throttled[reader] += 1
                return await THROTTLED(proxy, seen)
            self.read[reader] += 1
            read = AnsweredRead(asyncio.get_running_loop().time(), reader)
            self._reads[shard].append(read)
            return await self._pass(proxy, seen, shard, read)

        return answer

    async def _pass(
        self, proxy: Proxy, seen: Seen, shard: str | None, read: AnsweredRead | None = None
    ) -> web.StreamResponse:
        status, headers, content = await proxy.ask(seen)
        answer_body = json.loads(content)
        following = answer_body.get("ShardIterator") or answer_body.get("NextShardIterator")
        if shard is not None and following is not None:
            self._shards[following] = shard
        if read is not None:
            read.size = len(content)
        return web.Response(status=status, headers=headers, body=content)

    def _exceeds(self, shard: str, reader: str) -> bool:
        now = asyncio.get_running_loop().time()
        reads = self._reads.setdefault(shard, deque())
        while reads and reads[0].moment <= now - 1:
            reads.popleft()
        present = {read.reader for read in reads if read.moment > now - SLOT_SECONDS} | {reader}
        size = sum(read.size for read in reads)
        return len(reads) >= READS_PER_SECOND or size >= BYTES_PER_SECOND or len(present) > READERS


class Shared:
    """A shard on a virtual clock that serves five reads a second to all readers together."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._moments: deque[float] = deque()

    def admits(self) -> bool:
        while self._moments and self._moments[0] <= self._clock() - 1:
            self._moments.popleft()
        if len(self._moments) >= READS_PER_SECOND:
            return False
        self._moments.append(self._clock())
        return True
