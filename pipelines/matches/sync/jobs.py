"""Sync jobs: what the provider says of leagues, teams and fixtures, written where it differs from what is stored."""

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
from datastore.matches.team_seasons import TeamSeason, TeamSeasons, team_season_from
from datastore.matches.teams import Team, Teams
from datastore.model.identifiers import ascii_upper
from datastore.session.pagination import Span
from datastore.session.store import Store
from pipelines.matches.providers.provider import Malformed
from pipelines.matches.sync.sync_job import AT_ONCE, Synced, SyncJob

__all__ = ["FixtureSyncJob", "LeagueSyncJob", "SyncJob", "Synced", "TeamSyncJob"]

MOST_TEAMS = 200
BEHIND, AHEAD = timedelta(days=7), timedelta(days=30)
MOST_CACHED = 1000  # of a league: what is beyond is written without need, and no harm is done
MOST_ASKED = 20

# What is known before a ball is bowled, and may change after.
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
    """Leagues that are new or changed (LG-4). Whether a league is active is for admins to say; new ones are."""

    name = "leagues"

    async def _sync(self) -> None:
        leagues = self._fetched(await self._provider.leagues())
        stored = {league.league_id: league for league in await Leagues(self._open_store(), self._now()).all()}
        wanted = [_as_stored(league, stored.get(league.league_id)) for league in leagues]
        changed = [league for league in wanted if league != _undated(stored.get(league.league_id))]

        async def put(store: Store, some: Sequence[League]) -> None:
            for league in some:
                await Leagues(store, self._now()).put(league)

        await self._write(changed, put)


def _as_stored(league: League, stored: League | None) -> League:
    active = league.active if stored is None else stored.active
    return replace(league, code=ascii_upper(league.code), active=active, updated_at=None)


def _undated(league: League | None) -> League | None:
    return None if league is None else replace(league, updated_at=None)


class TeamSyncJob(SyncJob):
    """Teams that are new or changed (TM-3), and the rows of each active league's current season (TS-2)."""

    name = "teams"

    async def _sync(self) -> None:
        await self._sync_teams()
        leagues = await Leagues(self._open_store(), self._now()).active()
        for season_id in dict.fromkeys(league.season_id for league in leagues if league.season_id):
            await self._sync_season(season_id)

    async def _sync_teams(self) -> None:
        teams = self._fetched(await self._provider.teams())
        known = await Teams(self._open_store(), self._now()).all()
        stored = {replace(team, updated_at=None) for team in known}
        versions = {team.team_id: team.version for team in known}
        changed = [
            replace(team, version=versions.get(team.team_id, 0))
            for team in teams
            if replace(team, updated_at=None) not in stored
        ]

        async def put(store: Store, some: Sequence[Team]) -> None:
            await Teams(store, self._now()).put_all(some)

        await self._write(changed, put)

    async def _sync_season(self, season_id: str) -> None:
        await self._keep_lock()
        rows = self._fetched(await self._provider.team_seasons(season_id))
        page = await TeamSeasons(self._open_store(), self._now()).of_season(season_id, Span(MOST_TEAMS))
        stored = {replace(team_season_from(item), updated_at=None) for item in page.items}
        changed = [row for row in rows if replace(row, updated_at=None) not in stored]

        async def put(store: Store, some: Sequence[TeamSeason]) -> None:
            await TeamSeasons(store, self._now()).put_all(some)

        await self._write(changed, put)


class FixtureSyncJob(SyncJob):
    """The fixtures of the active leagues from a week ago to a month ahead that are new or changed (FIX-4, FXC-6).

    What the provider said last is in the fixture cache (FXC-2, FXC-3). Of a match that is polled the poller keeps
    fixture and cache up to date; only its facts (teams, start, venue …) are compared then. Those that the provider said
    are to be played, and lists no more, are asked for one by one (FXC-4).
    """

    name = "fixtures"
    _polled: Set[str] = frozenset()
    _known: Set[str] = frozenset()

    async def _sync(self) -> None:
        leagues = [league.league_id for league in await Leagues(self._open_store(), self._now()).active()]
        actives = await ActiveMatches(self._open_store(), self._now()).all_latest()
        self._polled = {active.match_id for active in actives if active.status is ActiveStatus.ACTIVE}
        self._known = await self._cached_of(leagues)
        listed: set[str] = set()
        some: list[Match] = []
        async for match in self._provider.fixtures(leagues, self._now() - BEHIND, self._now() + AHEAD):
            listed.add(match.match_id)
            some.append(match)
            if len(some) == AT_ONCE:
                await self._compare(some)
                some = []
        if some:
            await self._compare(some)
        await self._sweep(listed)

    async def _cached_of(self, leagues: Sequence[str]) -> Set[str]:
        """The ids of the matches whose last word is still good: of the others nothing need be read."""
        found: set[str] = set()
        for league_id in leagues:
            await self._keep_lock()
            page = await FixtureCache(self._open_store(), self._now()).of_league(league_id, Span(MOST_CACHED))
            found |= {item["matchId"] for item in page.items}
        return found

    async def _compare(self, matches: Sequence[Match]) -> None:
        await self._keep_lock()
        self._fetched(matches)
        cache = FixtureCache(self._open_store(), self._now())
        cached = await cache.get_many([match.match_id for match in matches if match.match_id in self._known])
        await self._put([match for match in matches if self._differs(match, cached.get(match.match_id))], cached)

    async def _put(self, changed: Sequence[Match], cached: Mapping[str, CachedMatch]) -> None:
        async def put(store: Store, some: Sequence[Match]) -> None:
            stored = await Fixtures(store, self._now()).sync(some, polled=self._polled)
            await self._keep(store, some, {match.match_id: match for match in stored}, cached)

        await self._write(changed, put)

    async def _keep(
        self,
        store: Store,
        matches: Sequence[Match],
        stored: Mapping[str, Match],
        cached: Mapping[str, CachedMatch],
    ) -> None:
        """What was said last. With the balls and lineups that the cache has, where the match was played here."""
        cache = FixtureCache(store, self._now())
        plain: list[MatchSnapshot] = []
        for match in matches:
            known, as_stored = cached.get(match.match_id), stored[match.match_id]
            is_the_pollers = match.match_id in self._polled and as_stored.version > 0
            if known is not None and known.version and (not is_the_pollers or known.snapshot.match.phase.is_over):
                await cache.put(_merged(known.snapshot, match, as_stored), as_stored.version)
            elif not is_the_pollers:
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
        is_news = match.match_id not in self._polled and not is_older_state(match, known, self._now())
        return is_news and changes_state(match, known)

    async def _sweep(self, listed: Set[str]) -> None:
        """Ask for those that were to be played, and are listed no more: moved far away, cancelled, or long gone."""
        await self._keep_lock()
        cached = {one.snapshot.match.match_id: one for one in await self._all_cached()}
        lost = [one.snapshot.match for id, one in cached.items() if id not in listed and id not in self._polled]
        lost = sorted((match for match in lost if not match.phase.is_over), key=lambda match: match.start_time)
        for match in lost[:MOST_ASKED]:
            await self._keep_lock()
            try:
                snapshot = await self._provider.match(match.match_id)
            except Malformed as problem:
                logger.warning("Sync of %s: %s", self.name, problem)
                continue
            if snapshot is None:
                await self._archive(match.match_id)
            elif self._differs(snapshot.match, cached[match.match_id]):
                self._fetched([snapshot.match])
                await self._put([snapshot.match], cached)

    async def _all_cached(self) -> list[CachedMatch]:
        return await FixtureCache(self._open_store(), self._now()).all()

    async def _archive(self, match_id: str) -> None:
        """The provider has taken a match away: it stays readable, and is marked as left."""
        fixtures = Fixtures(self._open_store(), self._now())
        stored = await fixtures.latest(match_id)
        if stored is None or stored.archived_at is not None:
            return
        try:
            await fixtures.archive(match_id)
        except NotFound:
            return
        logger.warning("%s has match %s no more: it is archived", self._provider.name, match_id)


def _merged(snapshot: MatchSnapshot, match: Match, stored: Match) -> MatchSnapshot:
    """Return the provider's facts with the stored rest: the stored state may be the newer one.

    Fields that an operator set keep the provider's value here.
    """
    facts = {fact: getattr(match, fact) for fact in FACTS}
    merged = with_operator_fields(stored, replace(match, operator_fields=stored.operator_fields))
    state = {part: getattr(merged, part) for part in STATE}
    return replace(snapshot, match=replace(snapshot.match, **facts, **state))
