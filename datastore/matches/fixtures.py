"""Fixtures: matches in the table `cricket-fixtures` (FIX-1 … FIX-6)."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from msgspec.structs import replace

from datastore.dynamodb.codec import Item
from datastore.dynamodb.record_decoder import RecordDecoder
from datastore.dynamodb.records import LazyItem, raw_record_or_error, record
from datastore.errors import Conflict, NotFound
from datastore.keyspace.matches import fixtures as keys
from datastore.keyspace.matches.fixtures import FIXTURES
from datastore.matches.cricket import (
    Match,
    MatchPhase,
)
from datastore.matches.fixture_items import fact_attributes, live_attributes, match_from, match_item, state_attributes
from datastore.matches.operator_fields import (
    OPERATOR_FIELDS,
    FixtureField,
    OperatorConflict,
    attributes_of,
    unchanged_values,
    with_operator_fields,
    without_operator_fields,
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
from datastore.session.store import Store
from datastore.session.writes import WriteResult

UPDATE_CONCURRENCY = 8
ATTEMPTS = 5
# A fixture that starts within this time of now is not written by a plain put.
SOON = timedelta(hours=24)
# A state that was written within this time is taken to be polled.
RECENT_WRITE = timedelta(minutes=10)


class Fixtures:
    """One method for each access pattern."""

    def __init__(self, store: Store, now: datetime) -> None:
        self._store = store
        self._now = now

    async def by_id(
        self, match_id: str, pattern: AccessPattern = keys.FIXTURE, convert: RecordDecoder[Match] | None = None
    ) -> Match | None:
        """FIX-1: return a match with its scorecards, or None. Batched with other point reads.

        `convert` is a decoder that may omit parts.
        """
        item = await self._store.find(pattern, keys.fixture(match_id))
        return None if item is None else item.record(convert or match_from)

    async def by_ids(
        self, match_ids: Sequence[str], convert: RecordDecoder[Match] | None = None
    ) -> list[Match | Exception | None]:
        """FIX-2: return matches in the order of the ids: None for an unknown id, the error for a failed read."""
        attributes = None if convert is None or convert is match_from else convert.attributes
        items = await self._store.find_all(keys.MATCHES, list(map(keys.fixture, match_ids)), attributes)
        read = partial(raw_record_or_error, convert or match_from)
        return [read(item.raw) if isinstance(item, LazyItem) else item for item in items]

    async def latest(self, match_id: str) -> Match | None:
        """FIX-4: read a match consistently, before a write that depends on it."""
        return record(match_from, await self._store.get(keys.SYNC_FIXTURES, keys.fixture(match_id)))

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
        puts = [
            match_item(replace(match, revision=revisions[match.match_id]), self._now)
            for match in matches
            if match.match_id in new
        ]
        await self._store.write_all(keys.SYNC_FIXTURES, puts=puts)
        slots = asyncio.Semaphore(UPDATE_CONCURRENCY)

        async def write(match: Match, before: Match | None) -> Match:
            if match.match_id in new:
                return replace(match, updated_at=self._now, revision=revisions[match.match_id])
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
        key = keys.fixture(match.match_id)
        written: WriteResult | None = None
        if stored is None or not stored.version:
            item = {
                **fact_attributes(match),
                **state_attributes(match),
                "version": match.version,
                "updatedAt": iso(self._now),
            }
            # A poller without changes so far may have set these. A value of 0 leaves them as they are.
            item |= {"fence": match.fence} if match.fence else {}
            item |= {"lastBallId": match.last_ball_id} if match.last_ball_id else {}
            expression, values = versioned_update(without_operator_fields(item | _unarchived(match), match), REVISION)
            values |= {"zero": 0} | unchanged_values(match)
            written = await self._store.update(keys.SYNC_SOON, key, update=expression, **values)
        elif self._has_newer_state(match, stored, polled):
            item = {**fact_attributes(match), **stated_attributes(match)}
            item |= {"version": stored.version + 1, "updatedAt": iso(self._now)}
            expression, values = versioned_update(without_operator_fields(item | _unarchived(match), match), REVISION)
            values |= {"seen": stored.version, "held": stored.fence} | unchanged_values(match)
            written = await self._store.update(keys.SYNC_STATE, key, update=expression, **values)
        if written is not None and written.ok and written.item is not None:
            return match_from(written.item)
        if written is not None:
            _check_operator(written, match)
        return await self._write_facts(match)

    async def _write_facts(self, match: Match) -> Match:
        facts = without_operator_fields({**fact_attributes(match), "updatedAt": iso(self._now)}, match)
        expression, values = versioned_update(facts, REVISION)
        key = keys.fixture(match.match_id)
        written = await self._store.update(keys.SYNC_FACTS, key, update=expression, **values, **unchanged_values(match))
        if not written.ok:
            _check_operator(written, match)
            raise no_match(match.match_id)
        assert written.item is not None
        return match_from(written.item)

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
            expression, values = f"{expression}, {OPERATOR_FIELDS} :fields", values | {"fields": set(fields)}
        if cleared:
            # DynamoDB allows an attribute in only one clause of an expression, so a call sets fields or clears them.
            assert not fields
            expression += f" DELETE {OPERATOR_FIELDS} :cleared"
            values |= {"cleared": set(cleared)}
        values |= version_values(expected)
        written = await self._store.update(keys.UPDATE_FIXTURE, keys.fixture(match_id), update=expression, **values)
        return updated_record(written, expected, attributes, match_from, lambda: no_match(match_id), REVISION)

    async def write_live(self, match: Match) -> bool:
        """FIX-5: store the state of a match. Return False if a later lock holder has written it, or it does not exist.

        Fields that an operator set keep their values.

        Raises `OperatorConflict` if `match.operator_fields` does not name these fields.
        """
        expression, values = versioned_update(
            without_operator_fields(live_attributes(match, self._now), match), REVISION
        )
        values |= unchanged_values(match)
        written = await self._store.update(keys.WRITE_LIVE, keys.fixture(match.match_id), update=expression, **values)
        if not written.ok and written.item is not None and written.item.get("fence", 0) <= match.fence:
            _check_operator(written, match)
        return written.ok

    async def archive(self, match_id: str) -> Match:
        """FIX-6: mark a match that has left the live scores. Raises `NotFound`."""
        written = await self._store.update(keys.ARCHIVE_FIXTURE, keys.fixture(match_id), now=iso(self._now), one=1)
        if not written.ok or written.item is None:
            raise no_match(match_id)
        return match_from(written.item)


def is_older_state(match: Match, stored: Match, now: datetime) -> bool:
    """Return whether the state of a match is older than the stored state. It is not if the match restarts later."""
    bowled = _balls_bowled(stored)
    if match.phase.is_over or not bowled or (match.phase is MatchPhase.UPCOMING and match.start_time > now):
        return False
    return stored.phase is MatchPhase.FINISHED or _balls_bowled(match) < bowled


def changes_state(match: Match, stored: Match) -> bool:
    """Return whether the state that a match states differs from the stored state."""
    before = state_attributes(stored)
    return any(value != before[name] for name, value in stated_attributes(match).items())


def stated_attributes(match: Match) -> Item:
    """Return the state attributes that a match states. Lists have no scorecards; upcoming matches have no runs."""
    state = state_attributes(match)
    is_upcoming = match.phase is MatchPhase.UPCOMING
    is_stated = {"scores": match.innings or is_upcoming, "scorecards": match.scorecards or is_upcoming}
    return {name: value for name, value in state.items() if is_stated.get(name, True)}


def _unarchived(match: Match) -> Item:
    return {} if match.phase.is_over else {"archivedAt": None}


def _balls_bowled(match: Match) -> int:
    return sum(score.legal_balls for score in match.innings)


def _check_operator(written: WriteResult, match: Match) -> None:
    """Raise `OperatorConflict` if a write was refused because an operator set or cleared fields."""
    if written.ok or written.item is None:
        return
    stored = match_from(written.item)
    if stored.operator_fields != match.operator_fields:
        raise OperatorConflict(stored)


def source_values(match: Match, fields: Collection[FixtureField]) -> Item:
    """Return the attributes of these fields as the source states them."""
    stated = {**fact_attributes(match), **state_attributes(match)}
    return {name: stated[name] for field in fields for name in attributes_of(field)}


def _address(match_id: str) -> ItemAddress:
    return FIXTURES.name, keys.fixture(match_id)


def no_match(match_id: str) -> NotFound:
    return NotFound(f"There is no match {match_id!r}.")
