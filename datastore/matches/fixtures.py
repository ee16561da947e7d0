"""Matches as the table `cricket-fixtures` keeps them (FIX-1 … FIX-6)."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from msgspec.structs import replace

from datastore.dynamodb.codec import Item
from datastore.dynamodb.record_decoder import RecordDecoder
from datastore.dynamodb.records import LazyItem, raw_parsed, record
from datastore.errors import Conflict, NotFound
from datastore.keyspace.matches import fixtures as keys
from datastore.keyspace.matches.fixtures import FIXTURES
from datastore.matches.cricket import (
    Match,
    MatchPhase,
)
from datastore.matches.fixture_items import facts_of, live_of, match_from, match_item, state_of
from datastore.matches.operator_fields import (
    OPERATOR_FIELDS,
    FixtureField,
    OperatorWrote,
    attributes_of,
    unchanged,
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

UPDATES_AT_ONCE = 8
TRIES = 5
SOON = timedelta(hours=24)
LATELY = timedelta(minutes=10)


class Fixtures:
    """One method for each access pattern."""

    def __init__(self, store: Store, now: datetime) -> None:
        self._store = store
        self._now = now

    async def by_id(
        self, match_id: str, pattern: AccessPattern = keys.FIXTURE, convert: RecordDecoder[Match] | None = None
    ) -> Match | None:
        """FIX-1: a match with its scorecards; reads of one tick go out together. `convert` may leave something out."""
        found = await self._store.find(pattern, keys.fixture(match_id))
        return None if found is None else found.record(convert or match_from)

    async def by_ids(
        self, match_ids: Sequence[str], convert: RecordDecoder[Match] | None = None
    ) -> list[Match | Exception | None]:
        """FIX-2: in the order asked, None for those that are not there, what went wrong for those that fail."""
        attributes = None if convert is None or convert is match_from else convert.attributes
        found = await self._store.find_all(keys.MATCHES, list(map(keys.fixture, match_ids)), attributes)
        read = partial(raw_parsed, convert or match_from)
        return [read(one.raw) if isinstance(one, LazyItem) else one for one in found]

    async def latest(self, match_id: str) -> Match | None:
        """The same, read consistently: what leads to a write must not be old."""
        return record(match_from, await self._store.get(keys.SYNC_FIXTURES, keys.fixture(match_id)))

    async def of_league(self, league_code: str, start: datetime, end: datetime, span: Span) -> Page:
        """FIX-3: the matches of a league that start between two moments, both included, soonest first."""
        values = {"partition": league_code, "from": iso(start), "to": iso(end)}
        return await read_page(self._store, keys.BY_LEAGUE, [values], span)

    async def sync(self, matches: Sequence[Match], *, polled: Collection[str] | None = None) -> list[Match]:
        """FIX-4: store fixtures, and answer them as they stand; of two with one id the last counts.

        Of those that were played, how they stand is written too where nobody polls them, as a version of its own.
        `polled` are the ids of those that are; without it, what was written of late is taken to be.
        """
        matches = list({match.match_id: match for match in matches}.values())
        stored = await asyncio.gather(*[self.latest(match.match_id) for match in matches])
        pairs = list(zip(matches, stored, strict=True))
        far = {match.match_id for match, known in pairs if self._is_far(match, known, polled or ())}
        revisions = {match_id: PUT_VERSIONS.next(self._now, _place(match_id)) for match_id in far}
        puts = [
            match_item(replace(match, revision=revisions[match.match_id]), self._now)
            for match in matches
            if match.match_id in far
        ]
        await self._store.write_all(keys.SYNC_FIXTURES, puts=puts)
        at_once = asyncio.Semaphore(UPDATES_AT_ONCE)

        async def write(match: Match, known: Match | None) -> Match:
            if match.match_id in far:
                return replace(match, updated_at=self._now, revision=revisions[match.match_id])
            async with at_once:
                return await self._sync(match, known, polled)

        return await asyncio.gather(*[write(match, known) for match, known in pairs])

    def _is_far(self, match: Match, stored: Match | None, polled: Collection[str]) -> bool:
        """Return whether a put is safe: the fixture is new, and cannot begin to be played while it is written."""
        return stored is None and match.match_id not in polled and abs(match.start_time - self._now) > SOON

    async def _sync(self, match: Match, stored: Match | None, polled: Collection[str] | None) -> Match:
        """Store a fixture under a condition. Store only its facts if another writer has stored its state meanwhile.

        Raises `Conflict` if an operator changes the fixture at each attempt.
        """
        for _ in range(TRIES):
            try:
                return await self._sync_once(with_operator_fields(match, stored), stored, polled)
            except OperatorWrote as changed:
                stored = changed.stored
        raise Conflict("The fixture is being changed by others at the same time; try again.", retryable=True)

    async def _sync_once(self, match: Match, stored: Match | None, polled: Collection[str] | None) -> Match:
        """Raise `OperatorWrote` if an operator set or cleared fields since `stored` was read."""
        if polled and match.match_id in polled:
            return await self._write_facts(match)
        key = keys.fixture(match.match_id)
        written: WriteResult | None = None
        if stored is None or not stored.version:
            item = {**facts_of(match), **state_of(match), "version": match.version, "updatedAt": iso(self._now)}
            # A poller that has changed nothing yet may have set these: what is 0 stays as it is.
            item |= {"fence": match.fence} if match.fence else {}
            item |= {"lastBallId": match.last_ball_id} if match.last_ball_id else {}
            expression, values = versioned_update(without_operator_fields(item | _unarchived(match), match), REVISION)
            values |= {"zero": 0} | unchanged(match)
            written = await self._store.update(keys.SYNC_SOON, key, update=expression, **values)
        elif self._tells_state(match, stored, polled):
            item = {**facts_of(match), **state_told(match), "version": stored.version + 1, "updatedAt": iso(self._now)}
            expression, values = versioned_update(without_operator_fields(item | _unarchived(match), match), REVISION)
            values |= {"seen": stored.version, "held": stored.fence} | unchanged(match)
            written = await self._store.update(keys.SYNC_STATE, key, update=expression, **values)
        if written is not None and written.ok and written.item is not None:
            return match_from(written.item)
        if written is not None:
            _check_operator(written, match)
        return await self._write_facts(match)

    async def _write_facts(self, match: Match) -> Match:
        facts = without_operator_fields({**facts_of(match), "updatedAt": iso(self._now)}, match)
        expression, values = versioned_update(facts, REVISION)
        key = keys.fixture(match.match_id)
        written = await self._store.update(keys.SYNC_FACTS, key, update=expression, **values, **unchanged(match))
        if not written.ok:
            _check_operator(written, match)
            raise no_match(match.match_id)
        assert written.item is not None
        return match_from(written.item)

    def _tells_state(self, match: Match, stored: Match, polled: Collection[str] | None) -> bool:
        """Whether to write how a match stands that was played before."""
        written = stored.live_updated_at
        if polled is None and written is not None and self._now - written < LATELY:
            return False
        return not goes_back(match, stored, self._now) and differs_in_state(match, stored)

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

        Fields that an operator set keep their values. Raises `OperatorWrote` if those are not the fields that
        `match.operator_fields` names.
        """
        expression, values = versioned_update(without_operator_fields(live_of(match, self._now), match), REVISION)
        values |= unchanged(match)
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


def goes_back(match: Match, stored: Match, now: datetime) -> bool:
    """Whether a match that is not over looks older than what is stored of it. One that begins anew later does not."""
    bowled = _bowled(stored)
    if match.phase.is_over or not bowled or (match.phase is MatchPhase.UPCOMING and match.start_time > now):
        return False
    return stored.phase is MatchPhase.FINISHED or _bowled(match) < bowled


def differs_in_state(match: Match, stored: Match) -> bool:
    """Whether what it tells of how the match stands is not what is stored."""
    known = state_of(stored)
    return any(value != known[name] for name, value in state_told(match).items())


def state_told(match: Match) -> Item:
    """How it stands, as far as it tells: a list has no scorecards. A match that is to begin has neither runs."""
    state = state_of(match)
    begins = match.phase is MatchPhase.UPCOMING
    told = {"scores": match.innings or begins, "scorecards": match.scorecards or begins}
    return {name: value for name, value in state.items() if told.get(name, True)}


def _unarchived(match: Match) -> Item:
    return {} if match.phase.is_over else {"archivedAt": None}


def _bowled(match: Match) -> int:
    return sum(score.legal_balls for score in match.innings)


def _check_operator(written: WriteResult, match: Match) -> None:
    """Raise `OperatorWrote` if a write was refused because the operator's fields are not the expected ones."""
    if written.ok or written.item is None:
        return
    stored = match_from(written.item)
    if stored.operator_fields != match.operator_fields:
        raise OperatorWrote(stored)


def source_values(match: Match, fields: Collection[FixtureField]) -> Item:
    """Return the attributes of these fields as the source states them."""
    stated = {**facts_of(match), **state_of(match)}
    return {name: stated[name] for field in fields for name in attributes_of(field)}


def _place(match_id: str) -> ItemAddress:
    return FIXTURES.name, keys.fixture(match_id)


def no_match(match_id: str) -> NotFound:
    return NotFound(f"There is no match {match_id!r}.")
