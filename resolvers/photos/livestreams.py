"""Livestreams: SPARKS-8, SPARKS-N3 and the mutations of livestreams (SPARKS-W1)."""

from datetime import datetime
from functools import partial
from typing import Annotated

import strawberry

from datastore.keyspace.photos import livestreams as keys
from datastore.model.timestamps import from_iso, iso
from datastore.photos.livestreams import (
    Livestream,
    LivestreamState,
    check_times,
    livestream_from,
)
from datastore.session.pagination import SortOrder
from resolvers.photos.photo_access import Consistent, NotConsistent, check_index_read
from resolvers.shared import validation as validate
from resolvers.shared.arguments import (
    EXPECTED_VERSION,
    After,
    Before,
    ExpectedVersion,
    First,
    Last,
    Order,
)
from resolvers.shared.authorization import require
from resolvers.shared.client_ids import new_object_id
from resolvers.shared.context import Info
from resolvers.shared.paging import Connection

LONGEST_TITLE, LONGEST_DESCRIPTION = 200, 2000


def description(field: str, value: str) -> str:
    return validate.prose(field, value, LONGEST_DESCRIPTION)


def timestamp(field: str, value: datetime) -> datetime:
    """Return the time in milliseconds, the precision of the table."""
    return from_iso(iso(validate.timestamp(field, value)))


CHECKS: dict[str, validate.Check] = {
    "title": partial(validate.line, longest=LONGEST_TITLE),
    "description": description,
    "stream_url": validate.url,
    "start_time": timestamp,
    "end_time": timestamp,
}
REMOVABLE = ("description", "end_time")

LivestreamId = Annotated[
    strawberry.ID, strawberry.argument(description="The livestream's `livestreamId`, not the global `id`.")
]


@strawberry.input(description="A livestream to announce.")
class CreateLivestreamInput:
    title: str = strawberry.field(description="The title, 1 to 200 characters.")
    description: str | None = strawberry.field(description="The description, 1 to 2,000 characters.", default=None)
    stream_url: str = strawberry.field(
        description="The http(s) address at which the livestream can be watched, at most 1,000 characters."
    )
    start_time: datetime = strawberry.field(description="The start time.")
    end_time: datetime | None = strawberry.field(
        description="The end time, after `startTime` and at most 30 days later; by default unknown.",
        default=None,
    )
    livestream_id: strawberry.ID | None = strawberry.field(
        description="An id chosen by the client, which makes repeated requests safe: a UUID of version 7 in lower "
        "case, whose time is at most one day ago and at most five minutes ahead. By default the gateway creates "
        "one.",
        default=None,
    )


@strawberry.input(description="The fields of a livestream to change. Omitted fields keep their values.")
class UpdateLivestreamInput:
    livestream_id: strawberry.ID = strawberry.field(description="The livestream's `livestreamId`.")
    title: strawberry.Maybe[str | None] = strawberry.field(description="The title, 1 to 200 characters.", default=None)
    description: strawberry.Maybe[str | None] = strawberry.field(
        description="The description, 1 to 2,000 characters. Null removes it.", default=None
    )
    stream_url: strawberry.Maybe[str | None] = strawberry.field(
        description="The http(s) address at which the livestream can be watched, at most 1,000 characters.",
        default=None,
    )
    start_time: strawberry.Maybe[datetime | None] = strawberry.field(description="The start time.", default=None)
    end_time: strawberry.Maybe[datetime | None] = strawberry.field(
        description="The end time, after `startTime` and at most 30 days later. Null removes it: the end is unknown.",
        default=None,
    )
    expected_version: int | None = strawberry.field(description=EXPECTED_VERSION, default=None)


NewLivestream = Annotated[CreateLivestreamInput, strawberry.argument(description="The livestream.")]
Changes = Annotated[UpdateLivestreamInput, strawberry.argument(description="The changes, at least one field.")]


async def latest_livestream(info: Info, consistent: NotConsistent = False) -> Livestream | None:
    check_index_read(consistent)
    return await info.context.livestreams.latest()


async def livestream(info: Info, id: LivestreamId, consistent: Consistent = False) -> Livestream | None:
    return await info.context.livestreams.by_id(validate.id("id", id), consistent=consistent)


async def livestreams(
    info: Info,
    first: First = None,
    after: After = None,
    last: Last = None,
    before: Before = None,
    order: Order = SortOrder.DESCENDING,
    consistent: NotConsistent = False,
) -> Connection[Livestream]:
    check_index_read(consistent)
    connection = Connection(
        info.context.services.cursors, keys.LIVESTREAMS, "Query.livestreams", {"order": order.value}, livestream_from
    )
    page = await info.context.livestreams.all(connection.span(first, after, last, before), order)
    return connection.of(page)


def state(parent: strawberry.Parent[Livestream], info: Info) -> LivestreamState:
    return parent.state(parent.event_time or info.context.now)


async def create_livestream(info: Info, input: NewLivestream) -> Livestream:
    context = info.context
    require(context.identity, keys.CREATE_LIVESTREAM)
    values = validate.fields(input, CHECKS)
    check_times(values["start_time"], values["end_time"])
    livestream = Livestream(
        livestream_id=new_object_id(info, "livestreamId", input.livestream_id),
        created_at=timestamp("createdAt", context.requested_at),
        **values,
    )
    return await context.livestreams.create(livestream)


async def update_livestream(info: Info, input: Changes) -> Livestream:
    require(info.context.identity, keys.UPDATE_LIVESTREAM)
    changes = validate.changes(input, CHECKS, REMOVABLE)
    attributes = {
        name: iso(value) if isinstance(value, datetime) else value
        for name, value in validate.attributes(changes).items()
    }
    livestream_id, expected = validate.id("livestreamId", input.livestream_id), validate.version(input.expected_version)
    return await info.context.livestreams.update(livestream_id, attributes, expected)


async def end_livestream(
    info: Info, livestream_id: LivestreamId, expected_version: ExpectedVersion = None
) -> Livestream:
    require(info.context.identity, keys.END_LIVESTREAM)
    expected = validate.version(expected_version)
    return await info.context.livestreams.end(validate.id("livestreamId", livestream_id), expected)
