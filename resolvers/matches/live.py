"""Subscriptions to live matches: CRIC-S1 and CRIC-S2."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from datetime import datetime
from functools import partial
from typing import Annotated
from urllib.parse import quote, unquote

import strawberry

from datastore.change_streams.replay.signed_resume_ids import not_an_id
from datastore.change_streams.subscriptions.delivery import Delivery
from datastore.change_streams.subscriptions.event_source import EventSource, EventStream, SourceReader
from datastore.errors import Internal
from datastore.matches.active_matches import ActiveMatches
from datastore.matches.cricket import Match
from resolvers.matches.conflation import conflated
from resolvers.matches.ids import match_id as match_id_of
from resolvers.matches.join_filters import ScoresJoinFilter, UpdateJoinFilter
from resolvers.matches.match_update import (
    UPDATED_FIELDS,
    LiveScores,
    MatchUpdate,
    UnreadableUpdate,
    Updates,
    snapshot_of,
    updated_match,
)
from resolvers.matches.snapshots import read_snapshot
from resolvers.matches.version_sequence import QUEUE_LIMITS, VersionSequence
from resolvers.shared import validation as validate
from resolvers.shared.arguments import MatchId, argument
from resolvers.shared.context import Context, Info
from resolvers.shared.selected_fields import selected_fields

LONGEST_INTERVAL_MS = 60_000
AnyLeagueCode = Annotated[str | None, argument("The league's `code`; by default all leagues.")]
MinIntervalMs = Annotated[
    int,
    argument(
        "The minimum time between two updates of a match, in milliseconds, 0 to 60,000. Scores within "
        "this time are conflated. Wickets, milestones, innings changes, results and similar events are sent at "
        "once, and no event is lost."
    ),
]


async def match_updates(
    info: Info, match_id: MatchId, min_interval_ms: MinIntervalMs = 0
) -> EventSource[MatchUpdate | Internal]:
    id, seconds = match_id_of("matchId", match_id), _interval_seconds(min_interval_ms)

    async def first(context: Context) -> MatchUpdate:
        return await read_snapshot(context, id)

    def open_stream(reader: SourceReader[MatchUpdate | Internal]) -> EventStream[MatchUpdate | Internal]:
        known = {} if reader.resume is None else _known_version(id, reader.resume.known)
        sequence = VersionSequence(reader, lambda image: image["matchId"] == id, known, match_id=id)

        async def read_first() -> Updates:
            update = await reader.read_first()
            return [] if update is None or isinstance(update, Internal) else [update]

        updates = _updates_of(_conflated(sequence.updates(read_first), seconds))
        return EventStream(updates, partial(UpdateJoinFilter, sequence.seen), sequence.seen)

    return EventSource(
        open_stream,
        None if seconds else QUEUE_LIMITS,
        is_shared=not seconds,  # each subscriber has its own interval
        first=first,
        known=_known_after_update,
        parse_known=partial(_known_version, id),
    )


async def live_scores(
    info: Info, league_code: AnyLeagueCode = None, min_interval_ms: MinIntervalMs = 0
) -> EventSource[LiveScores | Internal]:
    seconds = _interval_seconds(min_interval_ms)
    code = None if league_code is None else validate.code("leagueCode", league_code)

    async def first(context: Context) -> LiveScores:
        matches = ActiveMatches(context.new_store(), context.services.now())
        live = await matches.live_in(code)
        if code is not None and not live:
            await context.leagues.check_code(code)
        return LiveScores(True, [snapshot_of(active) for active in live])

    def open_stream(reader: SourceReader[LiveScores | Internal]) -> EventStream[LiveScores | Internal]:
        known = {} if reader.resume is None else _known_versions(reader.resume.known)
        sequence = VersionSequence(
            reader, lambda image: code in (None, image.get("leagueCode", code)), known, only_live=True
        )

        async def read_first() -> Updates:
            scores = await reader.read_first()
            return [] if scores is None or isinstance(scores, Internal) else scores.updates

        scores = _scores_of(known, reader.resume is not None, _conflated(sequence.updates(read_first), seconds))
        return EventStream(scores, partial(ScoresJoinFilter, sequence.seen), sequence.seen, sequence.left)

    return EventSource(
        open_stream,
        None if seconds else QUEUE_LIMITS,
        is_shared=not seconds,
        first=first,
        known=_known_after_scores,
        parse_known=_known_versions,
    )


def sent_at(parent: strawberry.Parent[MatchUpdate], info: Info) -> datetime:
    return info.context.now


async def match(parent: strawberry.Parent[MatchUpdate], info: Info) -> Match | None:
    """Return the match of an update, without a read if the update contains the selected fields.

    A snapshot may follow a change of the fixture that the live state does not contain.
    """
    if not parent.is_snapshot and selected_fields(info) <= UPDATED_FIELDS:
        return updated_match(parent)
    return await info.context.fixtures.by_id(parent.match_id)


def _interval_seconds(milliseconds: int) -> float:
    return validate.number("minIntervalMs", milliseconds, minimum=0, maximum=LONGEST_INTERVAL_MS) / 1000


# An event id contains the position in the replay log and the versions that the client has. The position may be older
# than the versions: a snapshot is ahead of the log, and so is an update that was delivered while updates of other
# matches waited. After a resume the versions prevent a second delivery.


def _known_after_update(update: MatchUpdate | Internal) -> str:
    return "" if isinstance(update, Internal) else str(update.version)


def _known_version(match_id: str, known: str) -> dict[str, int]:
    return {match_id: _version_from(known)} if known else {}


def _known_after_scores(scores: LiveScores | Internal) -> str:
    return (
        "" if isinstance(scores, Internal) else _joined({update.match_id: update.version for update in scores.updates})
    )


def _joined(versions: Mapping[str, int]) -> str:
    return ",".join(f"{quote(id, safe='')}:{version}" for id, version in versions.items())


def _known_versions(known: str) -> dict[str, int]:
    parts = known.split(",") if known else ()
    return {unquote(id): _version_from(version) for id, _, version in (part.rpartition(":") for part in parts)}


def _version_from(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise not_an_id()
    return int(text)


def _conflated(
    batches: AsyncGenerator[Delivery[Updates], None], seconds: float
) -> AsyncGenerator[Delivery[Updates], None]:
    return conflated(batches, seconds) if seconds else batches


async def _updates_of(
    batches: AsyncGenerator[Delivery[Updates], None],
) -> AsyncGenerator[Delivery[MatchUpdate | Internal], None]:
    """Yield each update. For an update that cannot be read, yield its error, and continue."""
    known = ""
    async with aclosing(batches):
        async for delivery in batches:
            if delivery.event is None:
                known = known if delivery.start is None else delivery.known
                yield delivery.without_event()
                continue
            for update in delivery.event:
                if isinstance(update, UnreadableUpdate):
                    yield delivery.with_event(update.error, known)
                    continue
                known = _known_after_update(update)
                yield delivery.with_event(update, known)


async def _scores_of(
    known: Mapping[str, int], resumes: bool, batches: AsyncGenerator[Delivery[Updates], None]
) -> AsyncGenerator[Delivery[LiveScores | Internal], None]:
    versions = {**known}
    is_first = True
    async with aclosing(batches):
        async for delivery in batches:
            updates = delivery.event
            if updates is None:
                if delivery.start is not None and resumes and not delivery.start.is_too_old:
                    is_first = False
                yield delivery.without_event()
                continue
            for unreadable in updates:
                if isinstance(unreadable, UnreadableUpdate):
                    yield delivery.with_event(unreadable.error, _joined(versions))
            batch = [update for update in updates if isinstance(update, MatchUpdate)]
            if updates and not batch:
                continue
            if is_first:
                versions.clear()
            shown = [update for update in batch if update.has_content]
            ended = [update.match_id for update in batch if update.left]
            versions |= {update.match_id: update.version for update in batch}
            for id in ended:
                del versions[id]
            yield delivery.with_event(LiveScores(is_first, shown, ended), _joined(versions))
            is_first = False
