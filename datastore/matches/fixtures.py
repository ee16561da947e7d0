"""Matches as the table `cricket-fixtures` keeps them (FIX-1 … FIX-6)."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from datastore.attributes import Item
from datastore.errors import NotFound
from datastore.expressions import set_or_remove
from datastore.keyspace.matches import fixtures as keys
from datastore.matches.cricket import (
    InningsScore,
    Match,
    MatchPhase,
    Result,
    Scorecard,
    Target,
    Toss,
    Venue,
    from_json,
    to_json,
)
from datastore.moments import from_iso, iso
from datastore.pages import Page, Span, read_page
from datastore.records import record
from datastore.store import Store

UPDATES_AT_ONCE = 8


class Fixtures:
    """One method for each access pattern."""

    def __init__(self, store: Store, now: datetime) -> None:
        self._store = store
        self._now = now

    async def by_id(self, match_id: str) -> Match | None:
        """FIX-1: a match with its scorecards; reads of one tick go out together."""
        return record(match_from, await self._store.get(keys.FIXTURE, keys.fixture(match_id)))

    async def by_ids(self, match_ids: Sequence[str]) -> list[Match | BaseException | None]:
        """FIX-2: in the order asked, None for those that are not there, what went wrong for those that fail."""
        return await asyncio.gather(*[self.by_id(match_id) for match_id in match_ids], return_exceptions=True)

    async def latest(self, match_id: str) -> Match | None:
        """The same, read consistently: what leads to a write must not be old."""
        return record(match_from, await self._store.get(keys.SYNC_FIXTURES, keys.fixture(match_id)))

    async def of_league(self, league_code: str, start: datetime, end: datetime, span: Span) -> Page:
        """FIX-3: the matches of a league that start between two moments, both included, soonest first."""
        values = {"partition": league_code, "from": iso(start), "to": iso(end)}
        return await read_page(self._store, keys.BY_LEAGUE, [values], span)

    async def sync(self, matches: Sequence[Match]) -> list[Match]:
        """FIX-4: store fixtures, and answer them as they stand; of two with one id the last counts.

        Those that were played here keep their live part: only their facts are updated.
        """
        matches = list({match.match_id: match for match in matches}.values())
        stored = await asyncio.gather(*[self.latest(match.match_id) for match in matches])
        played = {match.match_id for match in stored if match is not None and match.version}
        puts = [match_item(match, self._now) for match in matches if match.match_id not in played]
        await self._store.write_all(keys.FIXTURES, puts=puts)
        at_once = asyncio.Semaphore(UPDATES_AT_ONCE)

        async def update(match: Match) -> Match:
            if match.match_id not in played:
                return replace(match, updated_at=self._now)
            async with at_once:
                return await self.update(match.match_id, _facts(match))

        return await asyncio.gather(*[update(match) for match in matches])

    async def update(self, match_id: str, attributes: Mapping[str, Any]) -> Match:
        """FIX-5: set some attributes (None removes one). Raises `NotFound` when there is no such match."""
        changes = {**attributes, "updatedAt": iso(self._now)}
        expression, values = set_or_remove(changes)
        written = await self._store.update(keys.UPDATE_FIXTURE, keys.fixture(match_id), update=expression, **values)
        if not written.ok or written.item is None:
            raise no_match(match_id)
        return match_from(written.item)

    async def write_live(self, match: Match) -> bool:
        """FIX-5: how the match stands. False when a later holder of its lock has written, or it is not there."""
        expression, values = set_or_remove(_live(match, self._now))
        written = await self._store.update(keys.WRITE_LIVE, keys.fixture(match.match_id), update=expression, **values)
        return written.ok

    async def archive(self, match_id: str) -> Match:
        """FIX-6: mark a match that has left the live scores. Raises `NotFound`."""
        written = await self._store.update(keys.ARCHIVE_FIXTURE, keys.fixture(match_id), now=iso(self._now))
        if not written.ok or written.item is None:
            raise no_match(match_id)
        return match_from(written.item)


def no_match(match_id: str) -> NotFound:
    return NotFound(f"There is no match {match_id}.")


def match_from(item: Mapping[str, Any]) -> Match:
    """A match from the table, or from its index, which has no scorecards."""
    return Match(
        match_id=item["matchId"],
        league_id=item["leagueId"],
        league_code=item["leagueCode"],
        home_team_id=item["homeTeamId"],
        away_team_id=item["awayTeamId"],
        start_time=from_iso(item["startTime"]),
        status=item.get("status", "NS"),
        phase=MatchPhase(item.get("phase", "unknown")),
        season_id=item.get("seasonId"),
        round=item.get("round"),
        format=item.get("format"),
        note=item.get("note"),
        venue=_nested(item, "venue", Venue),
        toss=_nested(item, "toss", Toss),
        scheduled_overs=item.get("scheduledOvers"),
        balls_per_over=item.get("ballsPerOver", 6),
        target=_nested(item, "target", Target),
        result=_nested(item, "result", Result),
        follow_on=item.get("followOn", False),
        player_of_match=item.get("playerOfMatch"),
        innings=_nested(item, "scores", tuple[InningsScore, ...]) or (),
        scorecards=_nested(item, "scorecards", tuple[Scorecard, ...]),
        version=item.get("version", 0),
        fence=item.get("fence", 0),
        last_ball_id=item.get("lastBallId", 0),
        updated_at=_moment(item, "updatedAt"),
        live_updated_at=_moment(item, "liveUpdatedAt"),
        archived_at=_moment(item, "archivedAt"),
    )


def match_item(match: Match, now: datetime) -> Item:
    """The whole item; what is None is left out."""
    item = {
        "matchId": match.match_id,
        **_facts(match),
        **_state(match),
        "version": match.version,
        "fence": match.fence,
        "lastBallId": match.last_ball_id,
        "updatedAt": iso(now),
    }
    return {name: value for name, value in item.items() if value is not None}


def _facts(match: Match) -> Item:
    """What is known before a ball is bowled."""
    return {
        "leagueId": match.league_id,
        "leagueCode": match.league_code,
        "homeTeamId": match.home_team_id,
        "awayTeamId": match.away_team_id,
        "startTime": iso(match.start_time),
        "seasonId": match.season_id,
        "round": match.round,
        "format": match.format,
        "venue": _text(match.venue),
        "scheduledOvers": match.scheduled_overs,
        "ballsPerOver": match.balls_per_over,
    }


def _state(match: Match) -> Item:
    """What changes while a match is played."""
    return {
        "status": match.status,
        "phase": match.phase.value,
        "note": match.note,
        "toss": _text(match.toss),
        "target": _text(match.target),
        "result": _text(match.result),
        "followOn": match.follow_on,
        "playerOfMatch": match.player_of_match,
        "scores": to_json(match.innings),
        "scorecards": to_json(match.scorecards or ()),
    }


def _live(match: Match, now: datetime) -> Item:
    return {
        **_state(match),
        "version": match.version,
        "fence": match.fence,
        "lastBallId": match.last_ball_id,
        "updatedAt": iso(now),
        "liveUpdatedAt": iso(now),
        "archivedAt": None,
    }


def _text(value: object | None) -> str | None:
    return None if value is None else to_json(value)


def _nested(item: Mapping[str, Any], name: str, kind: Any) -> Any:
    text = item.get(name)
    return None if text is None else from_json(text, kind)


def _moment(item: Mapping[str, Any], name: str) -> datetime | None:
    text = item.get(name)
    return None if text is None else from_iso(text)
