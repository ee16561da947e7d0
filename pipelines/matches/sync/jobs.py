"""The sync jobs of leagues, teams and fixtures."""

import logging
from collections.abc import Mapping, Sequence, Set
from datetime import timedelta

from msgspec.structs import replace

from datastore.errors import NotFound
from datastore.matches.active_matches import ActiveMatches
from datastore.matches.cricket import Match, MatchSnapshot
from datastore.matches.fixture_cache import CachedMatch, FixtureCache
from datastore.matches.fixtures import Fixtures, changes_state, is_older_state
from datastore.matches.leagues import League, Leagues
from datastore.matches.live_state import ActiveStatus
from datastore.matches.operator_fields import with_operator_fields
from datastore.matches.team_seasons import TeamSeason, TeamSeasons
from datastore.matches.teams import Teams
from datastore.model.identifiers import ascii_upper
from datastore.session.pagination import Span
from datastore.session.store import Store
from pipelines.matches.providers.provider import Malformed
from pipelines.matches.sync.sync_job import BATCH_SIZE, SyncJob, SyncResult

__all__ = ["FixtureSyncJob", "LeagueSyncJob", "SyncJob", "SyncResult", "TeamSyncJob"]

MAX_TEAMS = 200
BEHIND, AHEAD = timedelta(days=7), timedelta(days=30)
MAX_CACHED = 1000  # per league: a match beyond it is rewritten without need, but without harm
MAX_LOOKUPS = 20

# Fields known before the first ball that may change later.
FACTS = (
    "league_id",
    "league_code",
    "home_team_id",
    "away_team_id",
    "start_time",
    "season_id",
    "round",
    "format",
    "venue",
    "scheduled_overs",
)
STATE = (
    "status",
    "phase",
    "note",
    "toss",
    "target",
    "result",
    "follow_on",
    "player_of_match",
    "innings",
    "scorecards",
)

logger = logging.getLogger(__name__)


class LeagueSyncJob(SyncJob):
    """The sync of new and changed leagues (LG-4). Admins set whether a league is active; a new league is."""

    name = "leagues"

    async def _sync(self) -> None:
        leagues = self._count_fetched(await self._provider.leagues())
        known = await Leagues(self._open_store(), self._now()).all()
        stored = {league.league_id: replace(league, updated_at=None) for league in known}
        merged = [_as_stored(league, stored.get(league.league_id)) for league in leagues]
        changed = [league for league in merged if league != stored.get(league.league_id)]

        async def put(store: Store, batch: Sequence[League]) -> None:
            for league in batch:
                await Leagues(store, self._now()).put(league)

        await self._write(changed, put)


def _as_stored(league: League, stored: League | None) -> League:
    active = league.active if stored is None else stored.active
    return replace(league, code=ascii_upper(league.code), active=active, updated_at=None)


class TeamSyncJob(SyncJob):
    """The sync of new and changed teams (TM-3), and of the rows of each active league's current season (TS-2)."""

    name = "teams"

    async def _sync(self) -> None:
        await self._sync_teams()
        leagues = await Leagues(self._open_store(), self._now()).active()
        for season_id in dict.fromkeys(league.current_season_id for league in leagues if league.current_season_id):
            await self._sync_season(season_id)

    async def _sync_teams(self) -> None:
        teams = self._count_fetched(await self._provider.teams())
        known = await Teams(self._open_store(), self._now()).all()
        stored = {replace(team, updated_at=None) for team in known}
        versions = {team.team_id: team.version for team in known}
        changed = [
            replace(team, version=versions.get(team.team_id, 0))
            for team in teams
            if replace(team, updated_at=None) not in stored
        ]
        await self._write(changed, lambda store, batch: Teams(store, self._now()).put_all(batch))

    async def _sync_season(self, season_id: str) -> None:
        await self._extend_lock()
        rows = self._count_fetched(await self._provider.team_seasons(season_id))
        page = await TeamSeasons(self._open_store(), self._now()).of_season(season_id, Span(MAX_TEAMS))
        stored = {replace(TeamSeason.decoder(item), updated_at=None) for item in page.items}
        changed = [row for row in rows if replace(row, updated_at=None) not in stored]
        await self._write(changed, lambda store, batch: TeamSeasons(store, self._now()).put_all(batch))


class FixtureSyncJob(SyncJob):
    """The sync of new and changed fixtures of the active leagues, from a week ago to a month ahead (FIX-4, FXC-6).

    The fixture cache holds the provider's last data (FXC-2, FXC-3). The poller keeps fixture and cache of a polled
    match current, so only its facts (teams, start, venue …) are compared here. Unfinished matches that are no longer
    listed are fetched one by one (FXC-4).
    """

    name = "fixtures"
    _polled: Set[str] = frozenset()
    _cached_ids: Set[str] = frozenset()

    async def _sync(self) -> None:
        leagues = [league.league_id for league in await Leagues(self._open_store(), self._now()).active()]
        actives = await ActiveMatches(self._open_store(), self._now()).all_latest()
        self._polled = {active.match_id for active in actives if active.status is ActiveStatus.ACTIVE}
        self._cached_ids = await self._cached_of(leagues)
        listed: set[str] = set()
        batch: list[Match] = []
        async for match in self._provider.fixtures(leagues, self._now() - BEHIND, self._now() + AHEAD):
            listed.add(match.match_id)
            batch.append(match)
            if len(batch) == BATCH_SIZE:
                await self._compare(batch)
                batch = []
        if batch:
            await self._compare(batch)
        await self._look_up_unlisted(listed)

    async def _cached_of(self, leagues: Sequence[str]) -> Set[str]:
        """Return the ids of the cached matches. Other matches need no read."""
        match_ids: set[str] = set()
        for league_id in leagues:
            await self._extend_lock()
            page = await FixtureCache(self._open_store(), self._now()).of_league(league_id, Span(MAX_CACHED))
            match_ids |= {item["matchId"] for item in page.items}
        return match_ids

    async def _compare(self, matches: Sequence[Match]) -> None:
        await self._extend_lock()
        self._count_fetched(matches)
        cache = FixtureCache(self._open_store(), self._now())
        cached = await cache.get_many([match.match_id for match in matches if match.match_id in self._cached_ids])
        await self._put([match for match in matches if self._differs(match, cached.get(match.match_id))], cached)

    async def _put(self, changed: Sequence[Match], cached: Mapping[str, CachedMatch]) -> None:
        async def put(store: Store, batch: Sequence[Match]) -> None:
            stored = await Fixtures(store, self._now()).sync(batch, polled=self._polled)
            await self._update_cache(store, batch, {match.match_id: match for match in stored}, cached)

        await self._write(changed, put)

    async def _update_cache(
        self,
        store: Store,
        matches: Sequence[Match],
        stored: Mapping[str, Match],
        cached: Mapping[str, CachedMatch],
    ) -> None:
        """Cache the provider's data, with the cached balls and lineups of a match that was polled here."""
        cache = FixtureCache(store, self._now())
        plain: list[MatchSnapshot] = []
        for match in matches:
            known, as_stored = cached.get(match.match_id), stored[match.match_id]
            is_polled = match.match_id in self._polled and as_stored.version > 0
            if known is not None and known.version and (not is_polled or known.snapshot.match.phase.is_over):
                await cache.put(_merged(known.snapshot, match, as_stored), as_stored.version)
            elif not is_polled:
                plain.append(MatchSnapshot(match))
        await cache.put_all(plain)

    def _differs(self, match: Match, cached: CachedMatch | None) -> bool:
        if cached is None:
            return True
        known = cached.snapshot.match
        if not cached.version:
            return match != known
        if any(getattr(match, fact) != getattr(known, fact) for fact in FACTS):
            return True
        is_current = match.match_id not in self._polled and not is_older_state(match, known, self._now())
        return is_current and changes_state(match, known)

    async def _look_up_unlisted(self, listed: Set[str]) -> None:
        """Fetch unfinished matches that are no longer listed: rescheduled far away, cancelled, or long past."""
        await self._extend_lock()
        entries = await FixtureCache(self._open_store(), self._now()).all()
        cached = {entry.snapshot.match.match_id: entry for entry in entries}
        unlisted = [entry.snapshot.match for id, entry in cached.items() if id not in listed and id not in self._polled]
        unlisted = sorted((match for match in unlisted if not match.phase.is_over), key=lambda match: match.start_time)
        for match in unlisted[:MAX_LOOKUPS]:
            await self._extend_lock()
            try:
                snapshot = await self._provider.match(match.match_id)
            except Malformed as problem:
                logger.warning("Sync of %s: %s", self.name, problem)
                continue
            if snapshot is None:
                await self._archive(match.match_id)
            elif self._differs(snapshot.match, cached[match.match_id]):
                self._count_fetched([snapshot.match])
                await self._put([snapshot.match], cached)

    async def _archive(self, match_id: str) -> None:
        """Archive a match that the provider removed: it stays readable."""
        fixtures = Fixtures(self._open_store(), self._now())
        stored = await fixtures.latest(match_id)
        if stored is None or stored.archived_at is not None:
            return
        try:
            await fixtures.archive(match_id)
        except NotFound:
            return
        logger.warning("%s no longer has match %s; archived it", self._provider.name, match_id)


def _merged(snapshot: MatchSnapshot, match: Match, stored: Match) -> MatchSnapshot:
    """Return the provider's facts with the stored state, which may be newer.

    Fields that an operator set keep the provider's value here.
    """
    facts = {fact: getattr(match, fact) for fact in FACTS}
    merged = with_operator_fields(stored, replace(match, operator_fields=stored.operator_fields))
    state = {part: getattr(merged, part) for part in STATE}
    return replace(snapshot, match=replace(snapshot.match, **facts, **state))
