"""Sync jobs: what the provider says of leagues, teams and fixtures, written where it differs from what is stored."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import ClassVar, TypeVar

import msgspec

from datastore.client import RequestRefused
from datastore.errors import BadUserInput, DomainError
from datastore.keyspace.matches.locks import job_lock
from datastore.matches.cricket import Match, MatchSnapshot
from datastore.matches.fixture_cache import CachedMatch, FixtureCache
from datastore.matches.fixtures import Fixtures
from datastore.matches.leagues import League, Leagues
from datastore.matches.locks import Locks
from datastore.matches.team_seasons import TeamSeason, TeamSeasons, team_season_from
from datastore.matches.teams import Team, Teams
from datastore.pages import Span
from datastore.store import Store
from pipelines.matches.providers import Provider, ProviderError

# Longer than the slowest step of a run: a request to the provider with its retries.
LOCK_SECONDS = 120.0
AT_ONCE = 100
MOST_TEAMS = 200
BEHIND, AHEAD = timedelta(days=7), timedelta(days=30)

T = TypeVar("T")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Synced:
    """How a run went: of the `fetched` records of the provider those that differed were `written` or, bad, `rejected`.

    `locked`: another instance was at it, so nothing was done. `error`: what ended the run early, and what was written
    before it stays.
    """

    fetched: int = 0
    written: int = 0
    rejected: int = 0
    locked: bool = False
    error: str | None = None


class _LockLost(Exception):
    """Another instance took the job over, for this one was slower than its lock lives."""


class SyncJob:
    """A run at a time among all instances. `open_store` gives a fresh store, and so a fresh deadline, for each step."""

    name: ClassVar[str]

    def __init__(
        self,
        provider: Provider,
        open_store: Callable[[], Store],
        instance_id: str,
        now: Callable[[], datetime],
        *,
        lock_seconds: float = LOCK_SECONDS,
    ) -> None:
        self._provider = provider
        self._open_store = open_store
        self._instance_id = instance_id
        self._now = now
        self._lock_seconds = lock_seconds
        self._held_since = now()
        self._done = Synced()

    async def run(self) -> Synced:
        """Raises what the store raises on taking the lock; later failures end the run, and are logged and told."""
        self._held_since = self._now()
        if not await self._locks().acquire(job_lock(self.name), self._lock_seconds):
            return Synced(locked=True)
        self._done = Synced()
        try:
            await self._sync()
        except (ProviderError, DomainError, _LockLost) as problem:
            logger.warning("Sync of %s ended early: %s", self.name, problem or "its lock was lost")
            self._done = replace(self._done, error=type(problem).__name__.lstrip("_"))
        finally:
            await self._unlock()
        return self._done

    async def _sync(self) -> None:
        raise NotImplementedError

    async def _write(self, records: Sequence[T], write: Callable[[Store, Sequence[T]], Awaitable[object]]) -> None:
        """Write records, a hundred at a time. Where the store refuses some, each by itself: then one is rejected."""
        for at in range(0, len(records), AT_ONCE):
            some = records[at : at + AT_ONCE]
            await self._keep_lock()
            try:
                await write(self._open_store(), some)
                self._done = replace(self._done, written=self._done.written + len(some))
            except (BadUserInput, RequestRefused):
                await self._write_each(some, write)

    async def _write_each(self, records: Sequence[T], write: Callable[[Store, Sequence[T]], Awaitable[object]]) -> None:
        for one in records:
            await self._keep_lock()
            try:
                await write(self._open_store(), [one])
                self._done = replace(self._done, written=self._done.written + 1)
            except (BadUserInput, RequestRefused) as problem:
                logger.warning("Sync of %s: %.200r cannot be stored: %s", self.name, one, problem)
                self._done = replace(self._done, rejected=self._done.rejected + 1)

    def _fetched(self, records: Sequence[T]) -> Sequence[T]:
        self._done = replace(self._done, fetched=self._done.fetched + len(records))
        return records

    async def _keep_lock(self) -> None:
        """Extend the lock when half its time is over. Raises `_LockLost`."""
        if self._now() - self._held_since < timedelta(seconds=self._lock_seconds / 2):
            return
        self._held_since = self._now()
        if not await self._locks().extend(job_lock(self.name), self._lock_seconds):
            raise _LockLost

    async def _unlock(self) -> None:
        try:
            await self._locks().release(job_lock(self.name))
        except DomainError as problem:
            logger.warning("The lock of the job %s is left to expire: %s", self.name, problem)

    def _locks(self) -> Locks:
        return Locks(self._open_store(), self._instance_id, self._now())


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
    return replace(league, code=league.code.upper(), active=active, updated_at=None)


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
        stored = {replace(team, updated_at=None) for team in await Teams(self._open_store(), self._now()).all()}
        changed = [team for team in teams if replace(team, updated_at=None) not in stored]

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

    What the provider said last is in the fixture cache (FXC-2). Of a match that is or was played here the poller keeps
    fixture and cache up to date; only its facts (teams, start, venue …) are compared then.
    """

    name = "fixtures"

    async def _sync(self) -> None:
        league_ids = [league.league_id for league in await Leagues(self._open_store(), self._now()).active()]
        some: list[Match] = []
        async for match in self._provider.fixtures(league_ids, self._now() - BEHIND, self._now() + AHEAD):
            some.append(match)
            if len(some) == AT_ONCE:
                await self._compare(some)
                some = []
        await self._compare(some)

    async def _compare(self, matches: Sequence[Match]) -> None:
        await self._keep_lock()
        self._fetched(matches)
        cache = FixtureCache(self._open_store(), self._now())
        cached = await cache.get_many([match.match_id for match in matches])
        changed = [match for match in matches if _differs(match, cached.get(match.match_id))]

        async def put(store: Store, some: Sequence[Match]) -> None:
            stored = await Fixtures(store, self._now()).sync(some)
            cache = FixtureCache(store, self._now())
            played = {match.match_id for match in stored if match.version}
            await cache.put_all([MatchSnapshot(match) for match in some if match.match_id not in played])
            for match in some:
                known = cached.get(match.match_id)
                if match.match_id in played and known is not None and known.snapshot.match.phase.is_over:
                    await cache.put(_with_facts(known.snapshot, match), known.version)

        await self._write(changed, put)


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


def _differs(match: Match, cached: CachedMatch | None) -> bool:
    if cached is None:
        return True
    known = cached.snapshot.match
    if cached.version:
        return any(getattr(match, fact) != getattr(known, fact) for fact in FACTS)
    return match != known


def _with_facts(snapshot: MatchSnapshot, match: Match) -> MatchSnapshot:
    facts = {fact: getattr(match, fact) for fact in FACTS}
    return msgspec.structs.replace(snapshot, match=msgspec.structs.replace(snapshot.match, **facts))
