"""The Cricket API of SportMonks as a provider.

https://docs.sportmonks.com/cricket
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import aiohttp
import msgspec

from datastore.dynamodb.retry.backoff import Backoff
from datastore.matches.cricket import Match, MatchSnapshot
from datastore.matches.leagues import League
from datastore.matches.team_seasons import TeamSeason
from datastore.matches.teams import Team
from pipelines.matches.providers.provider import Malformed, ProviderError, ProviderUnavailable
from pipelines.matches.providers.sportmonks.balls import Score, scores_by_id
from pipelines.matches.providers.sportmonks.fixtures import match_of, snapshot_of
from pipelines.matches.providers.sportmonks.http import BASE_URL, LIMITS, RETRY, SportMonksHttp
from pipelines.matches.providers.sportmonks.quota import CALLS
from pipelines.matches.providers.sportmonks.reference import leagues_of, season_teams_of, standings_of, teams_of
from pipelines.matches.providers.sportmonks.single_flight import SingleFlight
from pipelines.matches.providers.sportmonks.values import readable, row

# At most ten are allowed.
EVERYTHING = "balls.score,batting.result,bowling,scoreboards,runs,lineup,venue,league,manofmatch"
SUMMARY = "runs,scoreboards,venue,league,manofmatch"
# The quota allows for a call every 1.8 seconds. Pollers tick every two: an answer must be old when they do, and a tick
# that comes a little early must not get the last one's.
INTERVAL = timedelta(seconds=1.9)
KEPT = timedelta(minutes=1)
SCORES_AGAIN = timedelta(minutes=1)
LIVESCORES = "livescores"
MOST_PAGES = 100

logger = logging.getLogger(__name__)


class _Envelope(msgspec.Struct):
    data: msgspec.Raw
    links: Any = None
    meta: Any = None


@dataclass(frozen=True, slots=True)
class _EndpointResponse:
    """What an endpoint said of matches, by the JSON it said it in: between two balls it says the same again."""

    at: datetime
    read: Mapping[bytes, MatchSnapshot]

    def of(self, match_id: str) -> MatchSnapshot | None:
        return next((found for found in self.read.values() if found.match.match_id == match_id), None)


class SportMonks:
    """See `Provider`. The session stays its owner's; `interval` is how old an answer may be that is given again."""

    name = "sportmonks"

    def __init__(
        self,
        session: aiohttp.ClientSession,
        token: str,
        *,
        base_url: str = BASE_URL,
        now: Callable[[], datetime],
        interval: timedelta = INTERVAL,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        retry: Backoff = RETRY,
        limits: aiohttp.ClientTimeout = LIMITS,
        calls_per_hour: int = CALLS,
    ) -> None:
        self._http = SportMonksHttp(
            session,
            token,
            base_url=base_url,
            now=now,
            sleep=sleep,
            retry=retry,
            limits=limits,
            calls_per_hour=calls_per_hour,
        )
        self._now = now
        self._interval = interval
        self._flights: SingleFlight[_EndpointResponse] = SingleFlight()
        self._answers: dict[str, _EndpointResponse] = {}
        self._alone: dict[str, datetime] = {}
        self._codes: dict[str, str] = {}
        self._scores: dict[str, Score] = {}
        self._scores_asked: datetime | None = None

    async def live(self) -> Sequence[Match]:
        """One call for all of them, with everything that `match` tells."""
        found = {snapshot.match.match_id: snapshot.match for snapshot in (await self._live()).read.values()}
        return list(found.values())

    async def match(self, match_id: str) -> MatchSnapshot | None:
        """From the live scores where it is in them; else, or while their quota is used up, by a call of its own."""
        if not _is_id(match_id):
            return None
        path, good_for = f"fixtures/{match_id}", self._interval
        try:
            if found := (await self._live()).of(match_id):
                return found
        except ProviderUnavailable as problem:
            if problem.retry_after is None:  # the service is away, and is for this call too
                raise
            good_for = self._shared_interval(match_id)
        return (await self._recent(path, good_for)).of(match_id)

    async def fixtures(self, league_ids: Sequence[str], start: datetime, end: datetime) -> AsyncIterator[Match]:
        """League by league, soonest first, `start` and `end` included; a match that two pages show comes once."""
        for league_id in dict.fromkeys(league_ids):
            # The service knows days only, and one day more on both sides makes its time zone no matter.
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
        found = leagues_of(await self._list("leagues"))
        self._codes = {league.league_id: league.code for league in found}
        return found

    async def teams(self) -> Sequence[Team]:
        return teams_of(await self._list("teams"))

    async def team_seasons(self, season_id: str) -> Sequence[TeamSeason]:
        """The standings; where there are none, the teams of the season without figures."""
        if not _is_id(season_id):
            return []
        found = standings_of(await self._list(f"standings/season/{season_id}", include="season"), season_id)
        if found:
            return found
        return season_teams_of(await self._data(f"seasons/{season_id}", Any, {"include": "teams"}), season_id)

    # Matches

    async def _live(self) -> _EndpointResponse:
        return await self._recent(LIVESCORES, self._interval)

    def _shared_interval(self, match_id: str) -> timedelta:
        """How long an answer is good when all matches share the quota of `fixtures`, with one share left for syncs."""
        now = self._now()
        self._alone = {id: asked for id, asked in self._alone.items() if now - asked < KEPT} | {match_id: now}
        return min(self._interval * (len(self._alone) + 1), KEPT)

    async def _recent(self, path: str, good_for: timedelta) -> _EndpointResponse:
        """The last answer if it is recent, or that of one request for all who ask now."""
        last = self._answers.get(path)
        if last is not None and self._now() - last.at < good_for:
            return last
        return await self._flights.join(path, lambda: self._ask(path))

    async def _ask(self, path: str) -> _EndpointResponse:
        await self._learn_scores()
        at = self._now()
        body = await self._http.get(path, {"include": EVERYTHING})
        answer = _EndpointResponse(at, {} if body is None else self._read(path, body))
        # What nobody asks for any more is not kept, or the matches of a season would pile up.
        self._answers = {key: kept for key, kept in self._answers.items() if at - kept.at < KEPT}
        self._answers[path] = answer
        return answer

    def _read(self, path: str, body: bytes) -> dict[bytes, MatchSnapshot]:
        """The fixtures of an answer. One that did not change by a byte since the last answer is not read again."""
        data = _decoded(path, _decoded(path, body, _Envelope).data, msgspec.Raw)
        alone = path != LIVESCORES
        contents = [bytes(data)] if alone else [bytes(raw) for raw in _decoded(path, data, list[msgspec.Raw])]
        last = self._answers[path].read if path in self._answers else {}
        read = {}
        for content in contents:
            snapshot = last.get(content) or self._snapshot(path, content)
            if snapshot is not None:
                read[content] = snapshot
        if alone and not read and bytes(data) not in (b"null", b"[]"):
            raise Malformed(f"SportMonks {path}: it is no fixture.")
        return read

    def _snapshot(self, path: str, content: bytes) -> MatchSnapshot | None:
        fixtures = [_decoded(path, content, Any)]
        found = readable("fixture", fixtures, lambda fixture: snapshot_of(fixture, self._codes, self._scores))
        return found[0] if found else None

    async def _learn_scores(self) -> None:
        """The table of scores, once. Balls bring theirs with them, so a failure is no reason to wait for it."""
        now = self._now()
        if self._scores or (self._scores_asked is not None and now - self._scores_asked < SCORES_AGAIN):
            return
        self._scores_asked = now
        try:
            self._scores = scores_by_id(await self._list("scores"))
        except ProviderError as problem:
            logger.warning("SportMonks: the table of scores is missing: %s", problem)
        self._answers.clear()  # what was read without it is read anew

    # Answers

    async def _list(self, path: str, **params: str) -> list[Any]:
        """The rows of an endpoint without pages."""
        return await self._data(path, list[Any], params) or []

    async def _data(self, path: str, kind: Any, params: Mapping[str, str]) -> Any:
        """None when the endpoint knows of nothing."""
        body = await self._http.get(path, params)
        return None if body is None else _decoded(path, _decoded(path, body, _Envelope).data, kind)

    async def _pages(self, path: str, params: Mapping[str, str]) -> AsyncIterator[Match]:
        seen: set[str] = set()
        for page in range(1, MOST_PAGES + 1):
            body = await self._http.get(path, {**params, "page": str(page)})
            if body is None:
                return
            envelope = _decoded(path, body, _Envelope)
            data = _decoded(path, envelope.data, list[Any])
            matches = {m.match_id: m for m in readable("fixture", data, lambda one: match_of(one, self._codes))}
            if matches and matches.keys() <= seen:
                raise Malformed(f"SportMonks {path}: page {page} repeats what came before it.")
            for match in matches.values():
                if match.match_id not in seen:
                    yield match
            seen |= matches.keys()
            if not data or not _has_next(envelope, page):
                return
        raise Malformed(f"SportMonks {path}: more than {MOST_PAGES} pages.")


def _is_id(text: str) -> bool:
    """Digits: ids become part of an address."""
    return text.isascii() and text.isdecimal()


def _has_next(envelope: _Envelope, page: int) -> bool:
    last = row(envelope.meta).get("last_page")
    if isinstance(last, int):
        return page < last
    return bool(row(envelope.links).get("next"))


def _decoded(path: str, body: bytes | msgspec.Raw, kind: Any) -> Any:
    """Raises `Malformed` for what is no JSON, or JSON of another shape."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (ValueError, RecursionError) as error:
        # The parser names a position, and never quotes what it read.
        problem = f"{type(error).__name__}: {error}" if isinstance(error, msgspec.MsgspecError) else "unreadable text"
    raise Malformed(f"SportMonks {path}: {problem}.")
