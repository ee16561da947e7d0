"""Matches as they are played: the subscriptions CRIC-S1 and CRIC-S2.

The feed is attached before the state is read. So every version from the one that was read is either in that state or
comes through the feed: what is not newer is passed over, and the rest is contiguous.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Annotated, NamedTuple
from urllib.parse import quote, unquote

import msgspec
import strawberry

from datastore.attributes import Item
from datastore.hub import Keeping
from datastore.keyspace.matches import active_matches as keys
from datastore.matches.active_matches import ActiveMatches
from datastore.matches.cricket import CricketEvent, EventKind, Match
from datastore.matches.fixtures import Fixtures, no_match
from datastore.matches.live_state import ActiveMatch, ActiveStatus, LiveScore, Part, begun
from datastore.resume_ids import not_an_id
from datastore.streams import Change
from resolvers import bounds
from resolvers.context import Context, Info
from resolvers.matches.conflation import conflated
from resolvers.matches.fixtures import MatchId
from resolvers.progress import Progress
from resolvers.subscribing import Shared, follow

LONGEST_INTERVAL_MS = 60_000
# The attributes of a state that updates show. A tick that changed nothing writes others.
SHOWN = (
    "version",
    "status",
    "matchPhase",
    "previousStatus",
    "previousScore",
    "previousBatting",
    "previousBowling",
    "last30Balls",
)
# Events are versions, and tell what has changed since the one before: none is left out but by `conflated`.
KEEPING = Keeping(keys.MATCH_UPDATES.policy)
# These may wait for the interval; all others are told at once.
PATIENT = {EventKind.FOUR, EventKind.SIX, EventKind.MAIDEN}

AnyLeagueCode = Annotated[
    str | None, strawberry.argument(description="A league's `code`; all leagues if nothing is said.")
]
MinIntervalMs = Annotated[
    int,
    strawberry.argument(
        description="The least time between two updates of a match, in milliseconds, at most 60,000. Scores in between "
        "are conflated; wickets, milestones, innings changes, results and the like come at once, and no event is lost."
    ),
]


@dataclass(frozen=True, slots=True)
class MatchUpdate:
    """A match at a version. `conflated` versions before it were left out: their events are in this one's.

    A snapshot is how the match stands, without the events that led to it: apply it as it is. `left`: the match is no
    longer live; when that is all there is to tell, nothing else differs from the update before. `is_final`: the match
    is over and is not polled any more, so no version follows.
    """

    match_id: str
    league_code: str
    version: int
    live: LiveScore
    is_snapshot: bool = False
    changed: tuple[Part, ...] = ()
    events: tuple[CricketEvent, ...] = ()
    conflated: int = 0
    left: bool = False
    is_final: bool = False

    @property
    def is_urgent(self) -> bool:
        return self.is_snapshot or self.left or self.is_final or any(event.kind not in PATIENT for event in self.events)

    @property
    def tells_more(self) -> bool:
        return self.is_snapshot or not self.left or bool(self.changed or self.events)

    def then(self, later: "MatchUpdate") -> "MatchUpdate":
        """This update and a later one as one. A snapshot takes the place of what came before, but for the events."""
        if not later.tells_more:
            return replace(self, left=True)
        if later.is_snapshot:
            return replace(later, events=self.events + later.events)
        return MatchUpdate(
            later.match_id,
            later.league_code,
            later.version,
            later.live,
            self.is_snapshot,
            tuple(dict.fromkeys(self.changed + later.changed)),
            self.events + later.events,
            self.conflated + 1 + later.conflated,
            later.left,
            later.is_final,
        )


Updates = Sequence[MatchUpdate]


@dataclass(frozen=True, slots=True)
class LiveScores:
    """Updates of some matches. The snapshot is every match that is live; `ended` are those that are no longer."""

    is_snapshot: bool
    updates: Updates
    ended: Sequence[str] = ()


async def match_updates(
    info: Info, match_id: MatchId, min_interval_ms: MinIntervalMs = 0
) -> Shared[MatchUpdate] | AsyncGenerator[MatchUpdate, None]:
    context, id = info.context, bounds.id("matchId", match_id)
    seconds = _interval(min_interval_ms)
    sequence = _Sequence(context, lambda image: image["matchId"] == id, _known_of_one(context, id), match_id=id)

    async def first(context: Context) -> MatchUpdate:
        return await _stands(context, id)

    def events(begin: Callable[[], Awaitable[MatchUpdate | None]]) -> AsyncGenerator[MatchUpdate, None]:
        async def stands() -> list[MatchUpdate]:
            update = await begin()
            return [] if update is None else [update]

        return _each(context, _paced(context, sequence, stands, seconds))

    if seconds:  # each has an interval of their own
        return events(partial(first, context))
    since = partial(_SinceUpdate, sequence)
    return Shared(context, KEEPING, events, first=first, since=since, seen=sequence.seen, known=_version)


async def live_scores(
    info: Info, league_code: AnyLeagueCode = None, min_interval_ms: MinIntervalMs = 0
) -> Shared[LiveScores] | AsyncGenerator[LiveScores, None]:
    context, seconds = info.context, _interval(min_interval_ms)
    code = None if league_code is None else bounds.code("leagueCode", league_code)
    known = _known_of_many(context)
    sequence = _Sequence(context, lambda image: code in (None, image["leagueCode"]), known, only_live=True)

    async def first(context: Context) -> LiveScores:
        matches = ActiveMatches(context.new_store(), context.services.now())
        live = await matches.live_in(code)
        if code is not None and not live:
            await context.leagues.check_code(code)
        return LiveScores(True, [_snapshot(active) for active in live])

    def events(begin: Callable[[], Awaitable[LiveScores | None]]) -> AsyncGenerator[LiveScores, None]:
        async def stands() -> Updates:
            scores = await begin()
            return [] if scores is None else scores.updates

        return _together(context, known, _paced(context, sequence, stands, seconds))

    if seconds:
        return events(partial(first, context))
    since = partial(_SinceScores, sequence)
    return Shared(
        context, KEEPING, events, first=first, since=since, seen=sequence.seen, left=sequence.left, known=_versions
    )


async def match(parent: strawberry.Parent[MatchUpdate], info: Info) -> Match | None:
    return await info.context.fixtures.by_id(parent.match_id)


def server_time(parent: strawberry.Parent[MatchUpdate], info: Info) -> datetime:
    return info.context.now


def _interval(milliseconds: int) -> float:
    """In seconds."""
    return bounds.number("minIntervalMs", milliseconds, least=0, most=LONGEST_INTERVAL_MS) / 1000


# What a client knows, as it goes with the place of an event. A place may be older than that: a snapshot is ahead of the
# changes, and so is what was told while updates of other matches waited. From there on a version is told once.


def _version(update: MatchUpdate) -> str:
    return str(update.version)


def _known_of_one(context: Context, match_id: str) -> dict[str, int]:
    known = context.progress.take_known() if context.progress is not None else ""
    return {match_id: _number(known)} if known else {}


def _versions(scores: LiveScores) -> str:
    return _told({update.match_id: update.version for update in scores.updates})


def _told(versions: Mapping[str, int]) -> str:
    return ",".join(f"{quote(id, safe='')}:{version}" for id, version in versions.items())


def _known_of_many(context: Context) -> dict[str, int]:
    known = context.progress.take_known() if context.progress is not None else ""
    parts = known.split(",") if known else ()
    return {unquote(id): _number(version) for id, _, version in (part.rpartition(":") for part in parts)}


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise not_an_id()
    return int(text)


def _paced(
    context: Context, sequence: "_Sequence", stands: Callable[[], Awaitable[Updates]], seconds: float
) -> AsyncGenerator[Updates, None]:
    if not seconds or context.progress is None:
        return sequence.updates(stands, context.progress)
    ahead = context.progress.as_ahead()
    return conflated(sequence.updates(stands, ahead), seconds, ahead, context.progress)


async def _each(context: Context, batches: AsyncGenerator[Updates, None]) -> AsyncGenerator[MatchUpdate, None]:
    async with aclosing(batches):
        async for batch in batches:
            for update in batch:
                if context.progress is not None:
                    context.progress.known = _version(update)
                yield update


async def _together(
    context: Context, known: Mapping[str, int], batches: AsyncGenerator[Updates, None]
) -> AsyncGenerator[LiveScores, None]:
    versions = {**known}
    progress, is_first = context.progress, True
    async with aclosing(batches):
        async for batch in batches:
            if is_first and progress is not None and progress.is_resumed:
                is_first = False
            elif is_first:
                versions.clear()
            told = [update for update in batch if update.tells_more]
            ended = [update.match_id for update in batch if update.left]
            versions |= {update.match_id: update.version for update in batch}
            for id in ended:
                del versions[id]
            if progress is not None:
                progress.known = _told(versions)
            yield LiveScores(is_first, told, ended)
            is_first = False


class _Over(NamedTuple):
    """A match is over and is not polled any more: no version follows this one."""

    version: int


class _Deleted(NamedTuple):
    """The state of a match was deleted."""

    match_id: str


class _Sequence:
    """How things stand, then every version that follows, each once and without a gap.

    With `only_live` a match that is no longer polled is told to have left, and begins anew when it is back. With a
    `match_id` the sequence is of that match, and ends with its last version.
    `seen` are the versions that were told, or that are `known` to one who goes on, `left` those of matches that left.
    """

    def __init__(
        self,
        context: Context,
        wanted: Callable[[Item], bool],
        known: Mapping[str, int],
        *,
        only_live: bool = False,
        match_id: str | None = None,
    ) -> None:
        self.seen: dict[str, int] = {**known}
        self.left: dict[str, int] = {}
        self._context = context
        self._wanted = wanted
        self._only_live = only_live
        self._match_id = match_id
        self._given: dict[str, MatchUpdate] = {}

    async def updates(
        self, stands: Callable[[], Awaitable[Updates]], progress: Progress | None
    ) -> AsyncGenerator[Updates, None]:
        """Batches: first what `stands` reads, and then one of each update."""

        async def first() -> Updates:
            updates = await stands()
            self.seen.clear()
            self.seen.update({update.match_id: update.version for update in updates})
            self._given = {update.match_id: update for update in updates}
            return updates

        async def last() -> _Over | None:
            if self._match_id is None or progress is None or not progress.is_resumed:
                return None
            update = await _stands(self._context, self._match_id)
            return _Over(update.version) if update.is_final else None

        changes: AsyncGenerator[ActiveMatch | _Deleted | Updates | _Over, None] = follow(
            self._context, keys.ACTIVE_MATCHES, self._select, KEEPING, prepare=last, first=first, progress=progress
        )
        last_version: int | None = None
        async with aclosing(changes):
            async for change in changes:
                if isinstance(change, _Over):
                    last_version = change.version
                elif isinstance(change, _Deleted):
                    if await self._is_back(change.match_id):
                        continue
                    if not self._only_live:
                        return
                    update = self._has_left(change.match_id)
                    if update is not None:
                        yield [update]
                elif not isinstance(change, ActiveMatch):
                    yield change
                    last_version = next((update.version for update in change if update.is_final), last_version)
                else:
                    update = await self._update(change)
                    if update is not None:
                        yield [update]
                    if _is_over(change):
                        last_version = change.version
                if self._has_given(last_version):
                    return

    def _has_given(self, last_version: int | None) -> bool:
        """Whether the only match of the sequence is over, and its last version was given."""
        if self._match_id is None or last_version is None:
            return False
        return self.seen.get(self._match_id, -1) >= last_version

    def _select(self, change: Change) -> ActiveMatch | _Deleted | None:
        image = change.new or change.old
        if image is None or not self._wanted(image):
            return None
        if change.new is None:
            return _Deleted(image["matchId"])
        if not _differs(change.old or {}, image):
            return None  # a tick that changed nothing
        return self._context.services.parsed_matches.of(change)

    async def _is_back(self, match_id: str) -> bool:
        matches = ActiveMatches(self._context.new_store(), self._context.services.now())
        return await matches.latest(match_id) is not None

    def _has_left(self, match_id: str) -> MatchUpdate | None:
        version, given = self.seen.pop(match_id, None), self._given.pop(match_id, None)
        if version is None or given is None:
            return None
        self.left[match_id] = version
        return replace(given, version=version, is_snapshot=False, changed=(), events=(), conflated=0, left=True)

    async def _restated(self, match_id: str, seen: int) -> MatchUpdate | None:
        """Return the present state, where it has the version that was given and differs from what was given."""
        given, update = self._given.get(match_id), await _stands(self._context, match_id)
        is_same = given is not None and _content(given) == _content(update)
        return None if update.version != seen or is_same else update

    async def _update(self, active: ActiveMatch) -> MatchUpdate | None:
        if self._only_live and active.status is not ActiveStatus.ACTIVE:
            self.left[active.match_id] = active.version
            if self.seen.pop(active.match_id, None) is None:
                return None
            return replace(_snapshot(active), is_snapshot=False, left=True)
        seen = self.seen.get(active.match_id)
        if seen == active.version and active.status is ActiveStatus.ACTIVE:
            # Another program has changed the state without a new version.
            update = await self._restated(active.match_id, active.version)
        else:
            update = await _next(self._context, active, seen)
        if update is not None:
            self._given[update.match_id] = update
            self.seen[update.match_id] = update.version
            self.left.pop(update.match_id, None)
        return update


class _Behind:
    """One who joins a sequence: of which matches they know more than had been told by then, or others.

    They know a match from the version it had when they read it; what left before is unknown to them until it has left
    the sequence, too.
    """

    def __init__(self, sequence: _Sequence) -> None:
        self._told = dict(sequence.seen)
        self._known: dict[str, int | None] = {}

    @property
    def is_settled(self) -> bool:
        return not self._known

    def knows(self, updates: Updates) -> None:
        self.go_on({update.match_id: update.version for update in updates})

    def is_reached(self, seen: Mapping[str, int], left: Mapping[str, int]) -> bool:
        return all(max(seen.get(id, -1), left.get(id, -1)) >= version for id, version in self._told.items())

    def go_on(self, seen: Mapping[str, int]) -> None:
        known = {**seen}
        self._known = {id: known.get(id) for id in known | self._told if known.get(id) != self._told.get(id)}

    def tells(self, id: str, update: MatchUpdate | None) -> bool:
        """Whether an update is news, or that the match has left (None)."""
        if id not in self._known:
            return True
        version = self._known[id]
        if update is None or (version is None and update.is_snapshot):
            del self._known[id]
            return update is not None or version is not None
        if version is None:
            return False
        if update.version >= version:
            del self._known[id]
        return update.version > version


class _SinceUpdate(_Behind):
    """What comes after an update."""

    def begin(self, first: MatchUpdate) -> None:
        self.knows([first])

    def is_news(self, event: MatchUpdate) -> bool:
        return self.tells(event.match_id, event)


class _SinceScores(_Behind):
    """What comes after the scores of all that were live."""

    def begin(self, first: LiveScores) -> None:
        self.knows(first.updates)

    def is_news(self, event: LiveScores) -> bool:
        """Of scores that come as they are made: each tells of one match."""
        if event.ended:
            return self.tells(event.ended[0], None)
        return any([self.tells(update.match_id, update) for update in event.updates])


def _differs(old: Item, new: Item) -> bool:
    return any(old.get(name) != new.get(name) for name in SHOWN)


def _content(update: MatchUpdate) -> LiveScore:
    return msgspec.structs.replace(update.live, updated_at=None)


async def _next(context: Context, active: ActiveMatch, seen: int | None) -> MatchUpdate | None:
    """The update of a change; None for one that was in an earlier state already, a snapshot when some are missing."""
    if seen is None:
        return _snapshot(active)
    if active.version <= seen:
        return None
    if active.version == seen + 1:
        return MatchUpdate(
            active.match_id,
            active.league_code,
            active.version,
            active.live,
            changed=active.changed,
            events=active.events,
            is_final=_is_over(active),
        )
    update = await _stands(context, active.match_id)
    return update if update.version > seen else None


async def _stands(context: Context, match_id: str) -> MatchUpdate:
    """A match as it stands, by its live state, else by its fixture. Raises `NotFound`."""
    store, now = context.new_store(), context.services.now()
    active = await ActiveMatches(store, now).latest(match_id)
    if active is None:
        match = await Fixtures(store, now).latest(match_id)
        if match is None:
            raise no_match(match_id)
        return replace(_snapshot(begun(match)), is_final=match.phase.is_over)
    return _snapshot(active)


def _snapshot(active: ActiveMatch) -> MatchUpdate:
    return MatchUpdate(
        active.match_id, active.league_code, active.version, active.live, is_snapshot=True, is_final=_is_over(active)
    )


def _is_over(active: ActiveMatch) -> bool:
    """Whether a match is over and is not polled any more. One that was taken off the list may be registered again."""
    return active.status is ActiveStatus.ENDED and active.live.phase.is_over
