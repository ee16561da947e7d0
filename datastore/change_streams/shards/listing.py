"""The listing of one stream's shards, with few calls of DescribeStream.

AWS allows ten calls a second in an account and region, and a listing of 100 shards for 24 hours has eight pages. A
shard appears when its parent ends, so the reader lists the children of an ended shard, in one call.
https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_streams_DescribeStream.html
"""

import asyncio
import math
import random
from collections.abc import Collection

from datastore.change_streams.shards.shard_reader import INVALID, ListedShard, Wire, shards_of
from datastore.dynamodb.client import RequestRefused

# The number of discovery intervals between two listings of the whole stream.
LISTING_INTERVALS = 30
# With more ended shards than this, listing the whole stream takes fewer calls.
MAX_CHILD_LISTINGS = 8
# The codes with which an engine refuses an unknown parameter.
UNKNOWN_PARAMETER = {INVALID, "SerializationException"}


class ShardListing:
    """The shards that a stream lists. `interval` is the seconds after which the reader looks for new shards."""

    def __init__(self, wire: Wire, stream: str, interval: float) -> None:
        self._wire = wire
        self._stream = stream
        self._interval = interval
        self._known: dict[str, ListedShard] = {}
        self._list_at = -math.inf

    def expire(self) -> None:
        """List the whole stream at the next refresh."""
        self._list_at = -math.inf

    async def refresh(self, childless: Collection[str]) -> list[ListedShard]:
        """Return the shards. List the children of the `childless` ones: ended shards without a known child.

        Other shards that are new or gone are found every `LISTING_INTERVALS` intervals. Raises the errors of the wire.
        """
        now = asyncio.get_running_loop().time()
        if not self._known or now >= self._list_at or len(childless) > MAX_CHILD_LISTINGS:
            await self._list()
        else:
            await self._add_children(childless)
        return [*self._known.values()]

    async def _add_children(self, parents: Collection[str]) -> None:
        for parent in parents:
            try:
                children = await shards_of(self._wire, self._stream, parent)
            except RequestRefused as refusal:
                if refusal.code not in UNKNOWN_PARAMETER:
                    raise
                await self._list()
                return
            # An engine that ignores the filter lists the whole stream.
            self._known |= {child.id: child for child in children}

    async def _list(self) -> None:
        self._known = {shard.id: shard for shard in await shards_of(self._wire, self._stream)}
        # Jitter: processes that were started together list at different times.
        seconds = LISTING_INTERVALS * self._interval * random.uniform(0.75, 1.25)
        self._list_at = asyncio.get_running_loop().time() + seconds
