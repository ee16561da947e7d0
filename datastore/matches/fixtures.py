"""Fixtures: matches in the table `cricket-fixtures` (FIX-1 … FIX-6)."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from datastore.dynamodb.record_decoder import RecordDecoder
from datastore.dynamodb.records import point_records, record
from datastore.errors import Conflict, NotFound
from datastore.items.repository import Repository
from datastore.keyspace.matches import fixtures as keys
from datastore.keyspace.matches.fixtures import FIXTURES
from datastore.matches.cricket import FixtureField, Match, MatchPhase
from datastore.matches.fixture_items import FACTS, STATE
from datastore.matches.operator_fields import (
    OperatorConflict,
    provided_attributes,
    unchanged_values,
    with_operator_fields,
)
from datastore.model.access_patterns import AccessPattern
from datastore.model.timestamps import iso
from datastore.model.versioning import REVISION
from datastore.session.optimistic_locking import (
    PUT_VERSIONS,
    ItemAddress,
    updated_record,
    version_values,
    versioned_update,
)
from datastore.session.pagination import Page, Span, read_page
from datastore.session.writes import WriteResult

UPDATE_CONCURRENCY = 8
ATTEMPTS = 5
# A fixture that starts within this time of now is not written by a plain put.
SOON = timedelta(hours=24)
# A state that was written within this time is taken to be polled.
RECENT_WRITE = timedelta(minutes=10)


class Fixtures(Repository):
    """One method for each access pattern."""

    async def by_id(
        self, match_id: str, pattern: AccessPattern = keys.FIXTURE, convert: RecordDecoder[Match] | None = None
    ) -> Match | None:
        """FIX-1: return a match with its scorecards, or None. Batched with other point reads.

        `convert` is a decoder that may omit parts.
        """
        item = await self._store.find(pattern, keys.fixture(match_id))
        return None if item is None else item.record(convert or Match.decoder)

    async def by_ids(
        self,
        match_ids: Sequence[str],
        pattern: AccessPattern = keys.MATCHES,
        convert: RecordDecoder[Match] | None = None,
    ) -> list[Match | Exception | None]:
        """FIX-1, FIX-2: return matches in the order of the ids: None for an unknown id, the error for a failed read."""
        convert = convert or Match.decoder
        attributes = None if convert is Match.decoder else convert.attributes
        items = await self._store.find_all(pattern, list(map(keys.fixture, match_ids)), attributes)
        return point_records(convert, items)

    async def latest(self, match_id: str) -> Match | None:
        """FIX-4: read a match consistently, before a write that depends on it."""
        return record(Match.decoder, await self._store.get(keys.SYNC_FIXTURES, keys.fixture(match_id)))

    async def of_league(self, league_code: str, start: datetime, end: datetime, span: Span) -> Page:
        """FIX-3: return the matches of a league that start from `start` to `end`, both inclusive, soonest first."""
        values = {"partition": league_code, "from": iso(start), "to": iso(end)}
        return await read_page(self._store, keys.BY_LEAGUE, [values], span)

    async def sync(self, matches: Sequence[Match], *, polled: Collection[str] | None = None) -> list[Match]:
        """FIX-4: store fixtures, and return them as stored. If two have one id, the last is stored.

        The state of a started match is stored as a new version, unless an instance polls the match. `polled` contains
        the ids of polled matches. Without it, a recently written state means that the match is polled.
        """
        matches = list({match.match_id: match for match in matches}.values())
        stored = await asyncio.gather(*[self.latest(match.match_id) for match in matches])
        pairs = list(zip(matches, stored, strict=True))
        new = {match.match_id for match, before in pairs if self._is_safe_to_put(match, before, polled or ())}
        revisions = {match_id: PUT_VERSIONS.next(self._now, _address(match_id)) for match_id in new}
        puts = {
            match.match_id: replace(match, updated_at=self._now, revision=revisions[match.match_id])
            for match in matches
            if match.match_id in new
        }
        await self._store.write_all(keys.SYNC_FIXTURES, puts=[match.item() for match in puts.values()])
        slots = asyncio.Semaphore(UPDATE_CONCURRENCY)

        async def write(match: Match, before: Match | None) -> Match:
            if match.match_id in new:
                return puts[match.match_id]
            async with slots:
                return await self._sync(match, before, polled)

        return await asyncio.gather(*[write(match, before) for match, before in pairs])

    def _is_safe_to_put(self, match: Match, stored: Match | None, polled: Collection[str]) -> bool:
        """Return whether a put is safe: the fixture is new, and the match does not start while it is written."""
        return stored is None and match.match_id not in polled and abs(match.start_time - self._now) > SOON

    async def _sync(self, match: Match, stored: Match | None, polled: Collection[str] | None) -> Match:
        """Store a fixture under a condition. Store only its facts if another writer has stored its state meanwhile.

        Raises `Conflict` if an operator changes the fixture at each attempt.
        """
        for _ in range(ATTEMPTS):
            try:
                return await self._sync_once(with_operator_fields(match, stored), stored, polled)
            except OperatorConflict as changed:
                stored = changed.stored
        raise Conflict("Operators are changing the fixture at the same time; try again.", retryable=True)

    async def _sync_once(self, match: Match, stored: Match | None, polled: Collection[str] | None) -> Match:
        """Raise `OperatorConflict` if an operator set or cleared fields since `stored` was read."""
        if polled and match.match_id in polled:
            return await self._write_facts(match)
        written: WriteResult | None = None
        if stored is None or not stored.version:
            # A poller without changes so far may have set these. A value of 0 leaves them as they are.
            names = [*STATE, *(name for name in ("fence", "last_ball_id") if getattr(match, name))]
            written = await self._write(keys.SYNC_SOON, match, names, zero=0)
        elif self._has_newer_state(match, stored, polled):
            next_version = replace(match, version=stored.version + 1)
            seen = {"seen": stored.version, "held": stored.fence}
            written = await self._write(keys.SYNC_STATE, next_version, _stated(match), **seen)
        if written is not None and written.ok and written.item is not None:
            return Match.decoder(written.item)
        if written is not None:
            _check_operator(written, match)
        return await self._write_facts(match)

    async def _write(self, pattern: AccessPattern, match: Match, state: Sequence[str], **values: Any) -> WriteResult:
        """Write the facts, the version and some fields of the state. A match that is not over is not archived."""
        names = [*FACTS, *state, "version", *(() if match.phase.is_over else ("archived_at",))]
        return await self._write_fields(pattern, replace(match, archived_at=None), names, **values)

    async def _write_fields(
        self, pattern: AccessPattern, match: Match, names: Sequence[str], **values: Any
    ) -> WriteResult:
        """Write some fields and the time, without those that an operator set."""
        attributes = provided_attributes(replace(match, updated_at=self._now), [*names, "updated_at"])
        expression, more = versioned_update(attributes, REVISION)
        values |= more | unchanged_values(match)
        return await self._store.update(pattern, keys.fixture(match.match_id), update=expression, **values)

    async def _write_facts(self, match: Match) -> Match:
        written = await self._write_fields(keys.SYNC_FACTS, match, FACTS)
        if not written.ok:
            _check_operator(written, match)
            raise no_match(match.match_id)
        assert written.item is not None
        return Match.decoder(written.item)

    def _has_newer_state(self, match: Match, stored: Match, polled: Collection[str] | None) -> bool:
        """Return whether the state of a started match must be written."""
        written_at = stored.live_updated_at
        if polled is None and written_at is not None and self._now - written_at < RECENT_WRITE:
            return False
        return not is_older_state(match, stored, self._now) and changes_state(match, stored)

    async def update(
        self,
        match_id: str,
        attributes: Mapping[str, Any],
        expected: int | None = None,
        *,
        fields: Collection[FixtureField] = (),
        cleared: Collection[FixtureField] = (),
    ) -> Match:
        """FIX-5: set some attributes (None removes one).

        The source does not overwrite the `fields` until a later call names them in `cleared`.
        Raises `NotFound` for an unknown match, and `Outdated` if its revision is not the expected one.
        """
        expression, values = versioned_update({**attributes, "updatedAt": iso(self._now)}, REVISION)
        if fields:
            expression, values = f"{expression}, operatorFields :fields", values | {"fields": set(fields)}
        if cleared:
            # DynamoDB allows an attribute in only one clause of an expression, so a call sets fields or clears them.
            assert not fields
            expression += " DELETE operatorFields :cleared"
            values |= {"cleared": set(cleared)}
        values |= version_values(expected)
        written = await self._store.update(keys.UPDATE_FIXTURE, keys.fixture(match_id), update=expression, **values)
        return updated_record(written, expected, attributes, Match.decoder, lambda: no_match(match_id), REVISION)

    async def write_live(self, match: Match) -> bool:
        """FIX-5: store the state of a match. Return False if a later lock holder has written it, or it does not exist.

        Fields that an operator set keep their values.

        Raises `OperatorConflict` if `match.operator_fields` does not name these fields.
        """
        live = replace(match, live_updated_at=self._now, archived_at=None)
        names = [*STATE, "version", "fence", "last_ball_id", "live_updated_at", "archived_at"]
        written = await self._write_fields(keys.WRITE_LIVE, live, names)
        if not written.ok and written.item is not None and written.item.get("fence", 0) <= match.fence:
            _check_operator(written, match)
        return written.ok

    async def archive(self, match_id: str) -> Match:
        """FIX-6: mark a match that has left the live scores. Raises `NotFound`."""
        written = await self._store.update(keys.ARCHIVE_FIXTURE, keys.fixture(match_id), now=iso(self._now), one=1)
        if not written.ok or written.item is None:
            raise no_match(match_id)
        return Match.decoder(written.item)


def is_older_state(match: Match, stored: Match, now: datetime) -> bool:
    """Return whether the state of a match is older than the stored state. It is not if the match restarts later."""
    bowled = _balls_bowled(stored)
    if match.phase.is_over or not bowled or (match.phase is MatchPhase.UPCOMING and match.start_time > now):
        return False
    return stored.phase is MatchPhase.FINISHED or _balls_bowled(match) < bowled


def changes_state(match: Match, stored: Match) -> bool:
    """Return whether the state that a match states differs from the stored state."""
    names = _stated(match)
    return match.attributes_of(names) != stored.attributes_of(names)


def _stated(match: Match) -> list[str]:
    """Return the fields of the state that a match states. Lists have no scorecards; upcoming matches have no runs."""
    is_upcoming = match.phase is MatchPhase.UPCOMING
    is_stated = {"innings": match.innings or is_upcoming, "scorecards": match.scorecards or is_upcoming}
    return [name for name in STATE if is_stated.get(name, True)]


def _balls_bowled(match: Match) -> int:
    return sum(score.legal_balls for score in match.innings)


def _check_operator(written: WriteResult, match: Match) -> None:
    """Raise `OperatorConflict` if a write was refused because an operator set or cleared fields."""
    if written.ok or written.item is None:
        return
    stored = Match.decoder(written.item)
    if stored.operator_fields != match.operator_fields:
        raise OperatorConflict(stored)


def _address(match_id: str) -> ItemAddress:
    return FIXTURES.name, keys.fixture(match_id)


def no_match(match_id: str) -> NotFound:
    return NotFound(f"There is no match {match_id!r}.")


def existing(match: Match | None, match_id: str) -> Match:
    """Return the match that was read. Raises `NotFound` if there is none."""
    if match is None:
        raise no_match(match_id)
    return match
