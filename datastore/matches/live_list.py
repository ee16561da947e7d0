"""The list of live matches: from their index, or by a Scan while the index is missing or in backfill."""

import logging
from datetime import datetime, timedelta
from typing import NamedTuple

from datastore.dynamodb.client import RequestRefused
from datastore.dynamodb.records import readable_records
from datastore.keyspace.matches import active_matches as keys
from datastore.matches.live_state import ActiveMatch, ActiveStatus, active_match_from, summary_from
from datastore.session.scan_cache import ScanCache
from datastore.session.store import Store

# The time for which a process uses the Scan before it tries the index again.
INDEX_RETRY_AFTER = timedelta(minutes=1)

logger = logging.getLogger(__name__)


class LiveMatchList(NamedTuple):
    """Live matches. `has_details` means that they include the lines and balls, which the index does not project."""

    matches: list[ActiveMatch]
    has_details: bool


async def read_live(store: Store, now: datetime, scan_cache: ScanCache | None) -> LiveMatchList:
    """AM-2: return the live matches, from the scan cache at most a second old, without it newly read."""
    if scan_cache is None:
        listed = await _by_index(store)
        return listed if listed is not None else await _by_scan(store)
    refused_at = scan_cache.refused_at.get(keys.LIVE_MATCHES)
    if refused_at is None or not timedelta(0) <= now - refused_at < INDEX_RETRY_AFTER:
        listed = await scan_cache.read(store, keys.LIVE_MATCHES, _by_index)
        if listed is not None:
            return listed
        scan_cache.refused_at[keys.LIVE_MATCHES] = now
    return await scan_cache.read(store, keys.LIVE_MATCHES_BY_SCAN, _by_scan)


async def _by_index(store: Store) -> LiveMatchList | None:
    """Return None if the index is missing or in backfill."""
    values = {"live": keys.LIVE, "active": ActiveStatus.ACTIVE.value}
    try:
        items = [item async for item in store.query_all(keys.LIVE_MATCHES, values)]
    except RequestRefused as refused:
        if not _is_unavailable(refused):
            raise
        logger.warning(
            "The index %s of %s cannot be read (%s). Live matches are read by a Scan. Add the index with `tables "
            "create --update`, or wait for the end of its backfill.",
            keys.LIVE_MATCHES.index,
            keys.ACTIVE_MATCHES.name,
            refused.message,
        )
        return None
    return LiveMatchList(readable_records(summary_from, items), has_details=False)


async def _by_scan(store: Store) -> LiveMatchList:
    items = await store.scan(keys.LIVE_MATCHES_BY_SCAN, active=ActiveStatus.ACTIVE.value)
    return LiveMatchList(readable_records(active_match_from, items), has_details=True)


def _is_unavailable(refused: RequestRefused) -> bool:
    """Return whether an index is missing or in backfill. DynamoDB has no error code for either."""
    texts = ("the specified index", "backfilling")
    return refused.code == "ValidationException" and any(text in refused.message for text in texts)
