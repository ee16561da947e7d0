"""Matches as they are played: the subscriptions CRIC-S1 and CRIC-S2."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from datetime import datetime
from functools import partial
from typing import Annotated
from urllib.parse import quote, unquote

import strawberry

from datastore.change_streams.replay.signed_resume_ids import not_an_id
from datastore.change_streams.subscriptions.event_source import SharedSource
from datastore.errors import Internal
from datastore.matches.active_matches import ActiveMatches
from datastore.matches.cricket import Match
from resolvers.matches.conflation import conflated
from resolvers.matches.fixtures import MatchId
from resolvers.matches.match_update import LiveScores, MatchUpdate, UnreadableUpdate, Updates, snapshot_of
from resolvers.matches.version_sequence import KEEPING, SinceScores, SinceUpdate, VersionSequence, read_update
from resolvers.shared import validation as bounds
from resolvers.shared.context import Context, Info

LONGEST_INTERVAL_MS = 60_000
AnyLeagueCode = Annotated[str | None, strawberry.argument(description="The league's `code`; by default all leagues.")]
MinIntervalMs = Annotated[
    int,
    strawberry.argument(
        description="The minimum time between two updates of a match, in milliseconds, 0 to 60,000. Scores within "
        "this time are conflated. Wickets, milestones, innings changes, results and similar events are sent at "
        "once, and no event is lost."
    ),
]


async def match_updates(
    info: Info, match_id: MatchId, min_interval_ms: MinIntervalMs = 0
) -> SharedSource[MatchUpdate | Internal] | AsyncGenerator[MatchUpdate | Internal, None]:
    context, id = info.context, bounds.id("matchId", match_id)
    seconds = _interval(min_interval_ms)
    sequence = VersionSequence(context, lambda image: image["matchId"] == id, _known_of_one(context, id), match_id=id)

    async def first(context: Context) -> MatchUpdate:
        return await read_update(context, id)

    def events(
        begin: Callable[[], Awaitable[MatchUpdate | Internal | None]],
    ) -> AsyncGenerator[MatchUpdate | Internal, None]:
        async def stands() -> Updates:
            update = await begin()
            return [] if update is None or isinstance(update, Internal) else [update]

        return _each(context, _paced(context, sequence, stands, seconds))

    if seconds:  # each has an interval of their own
        return events(partial(first, context))
    since = partial(SinceUpdate, sequence)
    return SharedSource(context, KEEPING, events, first=first, since=since, seen=sequence.seen, known=_version)


async def live_scores(
    info: Info, league_code: AnyLeagueCode = None, min_interval_ms: MinIntervalMs = 0
) -> SharedSource[LiveScores | Internal] | AsyncGenerator[LiveScores | Internal, None]:
    context, seconds = info.context, _interval(min_interval_ms)
    code = None if league_code is None else bounds.code("leagueCode", league_code)
    known = _known_of_many(context)
    sequence = VersionSequence(
        context, lambda image: code in (None, image.get("leagueCode", code)), known, only_live=True
    )

    async def first(context: Context) -> LiveScores:
        matches = ActiveMatches(context.new_store(), context.services.now())
        live = await matches.live_in(code)
        if code is not None and not live:
            await context.leagues.check_code(code)
        return LiveScores(True, [snapshot_of(active) for active in live])

    def events(
        begin: Callable[[], Awaitable[LiveScores | Internal | None]],
    ) -> AsyncGenerator[LiveScores | Internal, None]:
        async def stands() -> Updates:
            scores = await begin()
            return [] if scores is None or isinstance(scores, Internal) else scores.updates

        return _together(context, known, _paced(context, sequence, stands, seconds))

    if seconds:
        return events(partial(first, context))
    since = partial(SinceScores, sequence)
    return SharedSource(
        context, KEEPING, events, first=first, since=since, seen=sequence.seen, left=sequence.left, known=_versions
    )


async def match(parent: strawberry.Parent[MatchUpdate], info: Info) -> Match | None:
    return await info.context.fixtures.by_id(parent.match_id)


def server_time(parent: strawberry.Parent[MatchUpdate], info: Info) -> datetime:
    return info.context.now


def _interval(milliseconds: int) -> float:
    """In seconds."""
    return bounds.number("minIntervalMs", milliseconds, least=0, most=LONGEST_INTERVAL_MS) / 1000


# An event id holds the versions that the client has, besides the position in the log of changes. The position may be
# older than the versions: a snapshot is ahead of the log, and so is an update delivered while updates of other matches
# waited. After a resume, the versions prevent a second delivery.


def _version(update: MatchUpdate | Internal) -> str:
    return "" if isinstance(update, Internal) else str(update.version)


def _known_of_one(context: Context, match_id: str) -> dict[str, int]:
    known = context.progress.take_known() if context.progress is not None else ""
    return {match_id: _number(known)} if known else {}


def _versions(scores: LiveScores | Internal) -> str:
    return (
        "" if isinstance(scores, Internal) else _joined({update.match_id: update.version for update in scores.updates})
    )


def _joined(versions: Mapping[str, int]) -> str:
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
    context: Context, sequence: VersionSequence, stands: Callable[[], Awaitable[Updates]], seconds: float
) -> AsyncGenerator[Updates, None]:
    if not seconds or context.progress is None:
        return sequence.updates(stands, context.progress)
    ahead = context.progress.as_ahead()
    return conflated(sequence.updates(stands, ahead), seconds, ahead, context.progress)


async def _each(
    context: Context, batches: AsyncGenerator[Updates, None]
) -> AsyncGenerator[MatchUpdate | Internal, None]:
    """Yield each update, or the error of one that cannot be read, after which the subscription continues."""
    async with aclosing(batches):
        async for batch in batches:
            for update in batch:
                if isinstance(update, UnreadableUpdate):
                    yield update.error
                    continue
                if context.progress is not None:
                    context.progress.known = _version(update)
                yield update


async def _together(
    context: Context, known: Mapping[str, int], batches: AsyncGenerator[Updates, None]
) -> AsyncGenerator[LiveScores | Internal, None]:
    versions = {**known}
    progress, is_first = context.progress, True
    async with aclosing(batches):
        async for mixed in batches:
            for unreadable in mixed:
                if isinstance(unreadable, UnreadableUpdate):
                    yield unreadable.error
            batch = [update for update in mixed if isinstance(update, MatchUpdate)]
            if mixed and not batch:
                continue
            if is_first and progress is not None and progress.is_resumed:
                is_first = False
            elif is_first:
                versions.clear()
            shown = [update for update in batch if update.has_content]
            ended = [update.match_id for update in batch if update.left]
            versions |= {update.match_id: update.version for update in batch}
            for id in ended:
                del versions[id]
            if progress is not None:
                progress.known = _joined(versions)
            yield LiveScores(is_first, shown, ended)
            is_first = False
