"""Consistent reads of matches for snapshots."""

from dataclasses import replace

from datastore.matches.active_matches import ActiveMatches
from datastore.matches.fixtures import Fixtures, existing
from datastore.matches.live_state import ActiveMatch, initial_state
from resolvers.matches.match_update import MatchUpdate, snapshot_of
from resolvers.shared.context import Context


async def latest_state(context: Context, match_id: str) -> ActiveMatch | None:
    """Return the stored live state of a match, or None if it has none."""
    return await ActiveMatches(context.new_store(), context.services.now()).latest(match_id)


async def read_snapshot(context: Context, match_id: str) -> MatchUpdate:
    """Return a snapshot of a match from its live state or, without one, from its fixture.

    Raises: `NotFound` for an unknown match.
    """
    active = await latest_state(context, match_id)
    return await read_fixture_snapshot(context, match_id) if active is None else snapshot_of(active)


async def read_fixture_snapshot(context: Context, match_id: str) -> MatchUpdate:
    """Return a snapshot of a match without a live state.

    Raises: `NotFound` for an unknown match.
    """
    match = existing(await Fixtures(context.new_store(), context.services.now()).latest(match_id), match_id)
    return replace(snapshot_of(initial_state(match)), is_final=match.phase.is_over)
