"""The list of live matches: from their index, or by a Scan while the index is missing or being filled."""

import logging
from datetime import datetime, timedelta
from typing import NamedTuple

from datastore.dynamodb.client import RequestRefused
from datastore.dynamodb.records import readable
from datastore.keyspace.matches import active_matches as keys
from datastore.matches.live_state import ActiveMatch, ActiveStatus, active_match_from, summary_from
from datastore.session.scan_cache import ScanCache
from datastore.session.store import Store

# The time for which a process uses the Scan before it tries the index again.
ASKED_AGAIN = timedelta(minutes=1)

logger = logging.getLogger(__name__)


class LiveMatchList(NamedTuple):
    """Live matches. `is_whole` means that they include the lines and balls, which only the table has."""

    matches: list[ActiveMatch]
    is_whole: bool


async def read_live(store: Store, now: datetime, remembered: ScanCache | None) -> LiveMatchList:
    """AM-2: return the live matches, at most a second old if reads are `remembered`, else newly read."""
    if remembered is None:
        listed = await _by_index(store)
        return listed if listed is not None else await _by_scan(store)
    refused_at = remembered.refused_at.get(keys.LIVE_MATCHES)
    if refused_at is None or not timedelta(0) <= now - refused_at < ASKED_AGAIN:
        listed = await remembered.read(store, keys.LIVE_MATCHES, _by_index)
        if listed is not None:
            return listed
        remembered.refused_at[keys.LIVE_MATCHES] = now
    return await remembered.read(store, keys.LIVE_MATCHES_BY_SCAN, _by_scan)


async def _by_index(store: Store) -> LiveMatchList | None:
    """Return None where the index is missing or being filled."""
    values = {"live": keys.LIVE, "active": ActiveStatus.ACTIVE.value}
    try:
        items = [item async for item in store.query_all(keys.LIVE_MATCHES, values)]
    except RequestRefused as refused:
        if not _is_unavailable(refused):
            raise
        logger.warning(
            "The index %s of %s cannot be read (%s): live matches are found by a Scan. Add the index by `tables create "
            "--update`, or wait until it is filled.",
            keys.LIVE_MATCHES.index,
            keys.ACTIVE_MATCHES.name,
            refused.message,
        )
        return None
    return LiveMatchList(readable(summary_from, items), is_whole=False)


async def _by_scan(store: Store) -> LiveMatchList:
    items = await store.scan(keys.LIVE_MATCHES_BY_SCAN, active=ActiveStatus.ACTIVE.value)
    return LiveMatchList(readable(active_match_from, items), is_whole=True)


def _is_unavailable(refused: RequestRefused) -> bool:
    """Return whether an index is missing or being filled. DynamoDB has no error code for either."""
    texts = ("the specified index", "backfilling")
    return refused.code == "ValidationException" and any(text in refused.message for text in texts)
