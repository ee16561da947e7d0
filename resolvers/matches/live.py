"""Subscriptions to live matches: CRIC-S1 and CRIC-S2."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from datetime import datetime
from functools import partial
from typing import Annotated, Any
from urllib.parse import quote, unquote

import strawberry

from datastore.change_streams.replay.signed_resume_ids import not_an_id
from datastore.change_streams.subscriptions.event_source import SharedSource, SourceReader
from datastore.errors import Internal
from datastore.matches.active_matches import ActiveMatches
from datastore.matches.cricket import Match
from resolvers.matches.conflation import conflated
from resolvers.matches.join_filters import ScoresJoinFilter, UpdateJoinFilter
from resolvers.matches.match_update import LiveScores, MatchUpdate, UnreadableUpdate, Updates, snapshot_of
from resolvers.matches.snapshots import read_snapshot
from resolvers.matches.version_sequence import QUEUE_LIMITS, VersionSequence
from resolvers.shared import validation as validate
from resolvers.shared.arguments import MatchId
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
    context, id = info.context, validate.id("matchId", match_id)
    seconds = _interval_seconds(min_interval_ms)
    sequence = VersionSequence(context, lambda image: image["matchId"] == id, _known_version(context, id), match_id=id)

    async def first(context: Context) -> MatchUpdate:
        return await read_snapshot(context, id)

    def events(reader: SourceReader[MatchUpdate | Internal]) -> AsyncGenerator[MatchUpdate | Internal, None]:
        async def read_first() -> Updates:
            update = await reader.read_first()
            return [] if update is None or isinstance(update, Internal) else [update]

        return _updates_of(context, _conflated(context, sequence, read_first, seconds, reader))

    if seconds:  # each subscriber has its own interval
        return events(SourceReader(partial(first, context)))
    since = partial(UpdateJoinFilter, sequence.seen)
    return SharedSource(
        context, QUEUE_LIMITS, events, first=first, since=since, seen=sequence.seen, known=_known_after_update
    )


async def live_scores(
    info: Info, league_code: AnyLeagueCode = None, min_interval_ms: MinIntervalMs = 0
) -> SharedSource[LiveScores | Internal] | AsyncGenerator[LiveScores | Internal, None]:
    context, seconds = info.context, _interval_seconds(min_interval_ms)
    code = None if league_code is None else validate.code("leagueCode", league_code)
    known = _known_versions(context)
    sequence = VersionSequence(
        context, lambda image: code in (None, image.get("leagueCode", code)), known, only_live=True
    )

    async def first(context: Context) -> LiveScores:
        matches = ActiveMatches(context.new_store(), context.services.now())
        live = await matches.live_in(code)
        if code is not None and not live:
            await context.leagues.check_code(code)
        return LiveScores(True, [snapshot_of(active) for active in live])

    def events(reader: SourceReader[LiveScores | Internal]) -> AsyncGenerator[LiveScores | Internal, None]:
        async def read_first() -> Updates:
            scores = await reader.read_first()
            return [] if scores is None or isinstance(scores, Internal) else scores.updates

        return _scores_of(context, known, _conflated(context, sequence, read_first, seconds, reader))

    if seconds:
        return events(SourceReader(partial(first, context)))
    since = partial(ScoresJoinFilter, sequence.seen)
    return SharedSource(
        context,
        QUEUE_LIMITS,
        events,
        first=first,
        since=since,
        seen=sequence.seen,
        left=sequence.left,
        known=_known_after_scores,
    )


async def match(parent: strawberry.Parent[MatchUpdate], info: Info) -> Match | None:
    return await info.context.fixtures.by_id(parent.match_id)


def server_time(parent: strawberry.Parent[MatchUpdate], info: Info) -> datetime:
    return info.context.now


def _interval_seconds(milliseconds: int) -> float:
    return validate.number("minIntervalMs", milliseconds, minimum=0, maximum=LONGEST_INTERVAL_MS) / 1000


# An event id contains the position in the replay log and the versions that the client has. The position may be older
# than the versions: a snapshot is ahead of the log, and so is an update that was delivered while updates of other
# matches waited. After a resume the versions prevent a second delivery.


def _known_after_update(update: MatchUpdate | Internal) -> str:
    return "" if isinstance(update, Internal) else str(update.version)


def _known_version(context: Context, match_id: str) -> dict[str, int]:
    known = context.progress.take_known() if context.progress is not None else ""
    return {match_id: _version_from(known)} if known else {}


def _known_after_scores(scores: LiveScores | Internal) -> str:
    return (
        "" if isinstance(scores, Internal) else _joined({update.match_id: update.version for update in scores.updates})
    )


def _joined(versions: Mapping[str, int]) -> str:
    return ",".join(f"{quote(id, safe='')}:{version}" for id, version in versions.items())


def _known_versions(context: Context) -> dict[str, int]:
    known = context.progress.take_known() if context.progress is not None else ""
    parts = known.split(",") if known else ()
    return {unquote(id): _version_from(version) for id, _, version in (part.rpartition(":") for part in parts)}


def _version_from(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise not_an_id()
    return int(text)


def _conflated(
    context: Context,
    sequence: VersionSequence,
    read_first: Callable[[], Awaitable[Updates]],
    seconds: float,
    reader: SourceReader[Any],
) -> AsyncGenerator[Updates, None]:
    if not seconds or context.progress is None:
        return sequence.updates(read_first, context.progress, reader)
    ahead = context.progress.as_ahead()
    return conflated(sequence.updates(read_first, ahead, reader), seconds, ahead, context.progress)


async def _updates_of(
    context: Context, batches: AsyncGenerator[Updates, None]
) -> AsyncGenerator[MatchUpdate | Internal, None]:
    """Yield each update. For an update that cannot be read, yield its error, and continue."""
    async with aclosing(batches):
        async for batch in batches:
            for update in batch:
                if isinstance(update, UnreadableUpdate):
                    yield update.error
                    continue
                if context.progress is not None:
                    context.progress.known = _known_after_update(update)
                yield update


async def _scores_of(
    context: Context, known: Mapping[str, int], batches: AsyncGenerator[Updates, None]
) -> AsyncGenerator[LiveScores | Internal, None]:
    versions = {**known}
    progress, is_first = context.progress, True
    async with aclosing(batches):
        async for updates in batches:
            for unreadable in updates:
                if isinstance(unreadable, UnreadableUpdate):
                    yield unreadable.error
            batch = [update for update in updates if isinstance(update, MatchUpdate)]
            if updates and not batch:
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
