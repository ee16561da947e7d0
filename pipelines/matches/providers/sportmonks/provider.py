"""The Cricket API of SportMonks as a provider.

https://docs.sportmonks.com/cricket
"""

import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec

from datastore.matches.cricket import Match, MatchSnapshot
from datastore.matches.leagues import League
from datastore.matches.team_seasons import TeamSeason
from datastore.matches.teams import Team
from datastore.primitives.single_flight import SingleFlight
from pipelines.matches.providers.provider import Malformed, ProviderError, ProviderUnavailable
from pipelines.matches.providers.sportmonks.balls import Score, scores_by_id
from pipelines.matches.providers.sportmonks.fixtures import match_of, snapshot_of
from pipelines.matches.providers.sportmonks.http import SportMonksHttp
from pipelines.matches.providers.sportmonks.reference import leagues_of, season_teams_of, standings_of, teams_of
from pipelines.matches.providers.sportmonks.values import convert_rows, row

# SportMonks allows at most ten includes.
EVERYTHING = "balls.score,batting.result,bowling,scoreboards,runs,lineup,venue,league,manofmatch"
SUMMARY = "runs,scoreboards,venue,league,manofmatch"
# The quota allows one call in 1.8 seconds. Pollers tick every two seconds. A response must have expired at each tick,
# and a tick that comes a little early must not get the response of the tick before it.
INTERVAL = timedelta(seconds=1.9)
CACHE_AGE = timedelta(minutes=1)
SCORES_RETRY_INTERVAL = timedelta(minutes=1)
LIVESCORES = "livescores"
MAX_PAGES = 100

logger = logging.getLogger(__name__)


class _Envelope(msgspec.Struct):
    data: msgspec.Raw
    links: Any = None
    meta: Any = None


@dataclass(frozen=True, slots=True)
class _EndpointResponse:
    """The snapshots of one response."""

    at: datetime
    #: By the JSON of the fixture. Between two balls it does not change, and the snapshot is reused.
    snapshots: Mapping[bytes, MatchSnapshot]

    def of(self, match_id: str) -> MatchSnapshot | None:
        return next((found for found in self.snapshots.values() if found.match.match_id == match_id), None)


class SportMonks:
    """The provider for SportMonks; see `Provider`. A response is reused for `interval`."""

    name = "sportmonks"

    def __init__(self, http: SportMonksHttp, *, now: Callable[[], datetime], interval: timedelta = INTERVAL) -> None:
        self._http = http
        self._now = now
        self._interval = interval
        self._flights = SingleFlight[str, _EndpointResponse](cancel_unused=True)
        self._responses: dict[str, _EndpointResponse] = {}
        self._single_calls: dict[str, datetime] = {}
        self._codes: dict[str, str] = {}
        self._scores: dict[str, Score] = {}
        self._scores_requested_at: datetime | None = None

    async def live(self) -> Sequence[Match]:
        """Return all live matches, as complete as those of `match`. It is one call."""
        snapshots = (await self._live()).snapshots.values()
        return list({snapshot.match.match_id: snapshot.match for snapshot in snapshots}.values())

    async def match(self, match_id: str) -> MatchSnapshot | None:
        """Return a match from the live scores. If it is not in them, or their quota is used up, call its fixture."""
        if not _is_id(match_id):
            return None
        path, max_age = f"fixtures/{match_id}", self._interval
        try:
            if snapshot := (await self._live()).of(match_id):
                return snapshot
        except ProviderUnavailable as problem:
            if problem.retry_after is None:  # the service is unavailable, and the other call would fail too
                raise
            max_age = self._shared_interval(match_id)
        return (await self._cached(path, max_age)).of(match_id)

    async def fixtures(self, league_ids: Sequence[str], start: datetime, end: datetime) -> AsyncIterator[Match]:
        """Yield the matches league by league, soonest first, each once; `start` and `end` are included."""
        for league_id in dict.fromkeys(league_ids):
            # The service filters by days. One more day on each side makes its time zone irrelevant.
            day = timedelta(days=1)
            params = {
                "filter[league_id]": league_id,
                "filter[starts_between]": f"{start - day:%Y-%m-%d},{end + day:%Y-%m-%d}",
                "include": SUMMARY,
                "sort": "starting_at",
            }
            async for match in self._pages("fixtures", params):
                if match.league_id == league_id and start <= match.start_time <= end:
                    yield match

    async def leagues(self) -> Sequence[League]:
        leagues = leagues_of(await self._list("leagues"))
        self._codes = {league.league_id: league.code for league in leagues}
        return leagues

    async def teams(self) -> Sequence[Team]:
        return teams_of(await self._list("teams"))

    async def team_seasons(self, season_id: str) -> Sequence[TeamSeason]:
        """Return the standings of a season, or its teams without figures when there are no standings."""
        if not _is_id(season_id):
            return []
        standings = standings_of(await self._list(f"standings/season/{season_id}", include="season"), season_id)
        if standings:
            return standings
        return season_teams_of(await self._data(f"seasons/{season_id}", Any, {"include": "teams"}), season_id)

    # Matches

    async def _live(self) -> _EndpointResponse:
        return await self._cached(LIVESCORES, self._interval)

    def _shared_interval(self, match_id: str) -> timedelta:
        """Return the age up to which a response is reused while all matches share the quota of `fixtures`.

        One share of the quota stays free for the syncs.
        """
        now = self._now()
        recent = {id: at for id, at in self._single_calls.items() if now - at < CACHE_AGE}
        self._single_calls = recent | {match_id: now}
        return min(self._interval * (len(self._single_calls) + 1), CACHE_AGE)

    async def _cached(self, path: str, max_age: timedelta) -> _EndpointResponse:
        """Return the last response if it is recent enough, else that of one request for all concurrent callers."""
        last = self._responses.get(path)
        if last is not None and self._now() - last.at < max_age:
            return last
        return await self._flights.join(path, lambda: self._request(path))

    async def _request(self, path: str) -> _EndpointResponse:
        await self._load_scores()
        at = self._now()
        body = await self._http.get(path, {"include": EVERYTHING})
        response = _EndpointResponse(at, {} if body is None else self._snapshots(path, body))
        # Old responses are dropped, or the matches of a season would accumulate.
        self._responses = {key: kept for key, kept in self._responses.items() if at - kept.at < CACHE_AGE}
        self._responses[path] = response
        return response

    def _snapshots(self, path: str, body: bytes) -> dict[bytes, MatchSnapshot]:
        """Return the snapshots of a response. A fixture with the same bytes as in the last response is not decoded."""
        data = _decoded(path, _decoded(path, body, _Envelope).data, msgspec.Raw)
        single = path != LIVESCORES
        fixtures = [bytes(data)] if single else [bytes(raw) for raw in _decoded(path, data, list[msgspec.Raw])]
        last = self._responses[path].snapshots if path in self._responses else {}
        snapshots = {}
        for fixture in fixtures:
            snapshot = last.get(fixture) or self._snapshot(path, fixture)
            if snapshot is not None:
                snapshots[fixture] = snapshot
        if single and not snapshots and bytes(data) not in (b"null", b"[]"):
            raise Malformed(f"SportMonks {path}: the data is not a fixture.")
        return snapshots

    def _snapshot(self, path: str, fixture: bytes) -> MatchSnapshot | None:
        rows = [_decoded(path, fixture, Any)]
        snapshots = convert_rows("fixture", rows, lambda row: snapshot_of(row, self._codes, self._scores))
        return snapshots[0] if snapshots else None

    async def _load_scores(self) -> None:
        """Load the table of scores once. Balls include their scores, so a failure does not delay the caller."""
        now = self._now()
        if self._scores or (
            self._scores_requested_at is not None and now - self._scores_requested_at < SCORES_RETRY_INTERVAL
        ):
            return
        self._scores_requested_at = now
        try:
            self._scores = scores_by_id(await self._list("scores"))
        except ProviderError as problem:
            logger.warning("SportMonks: the table of scores is missing: %s", problem)
        self._responses.clear()  # they were converted without the table

    # Answers

    async def _list(self, path: str, **params: str) -> list[Any]:
        """Return the rows of an endpoint without pages."""
        return await self._data(path, list[Any], params) or []

    async def _data(self, path: str, kind: Any, params: Mapping[str, str]) -> Any:
        """Return the data of a response, or None for a 404."""
        body = await self._http.get(path, params)
        return None if body is None else _decoded(path, _decoded(path, body, _Envelope).data, kind)

    async def _pages(self, path: str, params: Mapping[str, str]) -> AsyncIterator[Match]:
        seen: set[str] = set()
        for page in range(1, MAX_PAGES + 1):
            body = await self._http.get(path, {**params, "page": str(page)})
            if body is None:
                return
            envelope = _decoded(path, body, _Envelope)
            data = _decoded(path, envelope.data, list[Any])
            matches = {m.match_id: m for m in convert_rows("fixture", data, lambda row: match_of(row, self._codes))}
            if matches and matches.keys() <= seen:
                raise Malformed(f"SportMonks {path}: page {page} repeats earlier matches.")
            for match in matches.values():
                if match.match_id not in seen:
                    yield match
            seen |= matches.keys()
            if not data or not _has_next(envelope, page):
                return
        raise Malformed(f"SportMonks {path}: more than {MAX_PAGES} pages.")


def _is_id(text: str) -> bool:
    """Return whether a text has digits only: ids become part of a URL."""
    return text.isascii() and text.isdecimal()


def _has_next(envelope: _Envelope, page: int) -> bool:
    last = row(envelope.meta).get("last_page")
    if isinstance(last, int):
        return page < last
    return bool(row(envelope.links).get("next"))


def _decoded(path: str, body: bytes | msgspec.Raw, kind: Any) -> Any:
    """Decode JSON. Raises `Malformed` for another text, and for JSON of another type."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (ValueError, RecursionError) as error:
        # The parser's message names a position and never quotes the text.
        problem = f"{type(error).__name__}: {error}" if isinstance(error, msgspec.MsgspecError) else "unreadable text"
    raise Malformed(f"SportMonks {path}: {problem}.")
