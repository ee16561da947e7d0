"""Livestreams: SPARKS-8, SPARKS-N3 and the mutations of livestreams (SPARKS-W1)."""

from datetime import datetime
from typing import Annotated

import strawberry

from datastore.keyspace.photos import livestreams as keys
from datastore.model.access_patterns import consistently
from datastore.model.timestamps import from_iso, iso
from datastore.photos.livestreams import Livestream, LivestreamStatus, check_times
from datastore.session.pagination import SortOrder
from resolvers.photos.photo_access import list_of_type
from resolvers.shared import validation as validate
from resolvers.shared.arguments import EXPECTED_VERSION, Consistent, argument, optional, required
from resolvers.shared.authorization import require
from resolvers.shared.client_ids import CLIENT_ID, new_object_id
from resolvers.shared.context import Info


def timestamp(field: str, value: datetime) -> datetime:
    """Return the time in milliseconds, the precision of the table."""
    return from_iso(iso(validate.timestamp(field, value)))


TIMES: dict[str, validate.Check] = {"start_time": timestamp, "end_time": timestamp}

LIVESTREAM = ("Livestream",)

LivestreamId = Annotated[strawberry.ID, argument("The livestream's `livestreamId` or `id`.")]


@strawberry.input(description="A livestream to announce.")
class CreateLivestreamInput:
    title: str = required("The title, 1 to 200 characters.")
    description: str | None = optional("The description, 1 to 2,000 characters; by default none.")
    stream_url: str = required("The http(s) address at which the livestream can be watched, at most 1,000 characters.")
    start_time: datetime = required("The start time.")
    end_time: datetime | None = optional(
        "The end time, after `startTime` and at most 30 days later; by default unknown."
    )
    livestream_id: strawberry.ID | None = optional(CLIENT_ID)


@strawberry.input(description="The fields of a livestream to change. Omitted fields keep their values.")
class UpdateLivestreamInput:
    title: strawberry.Maybe[str | None] = optional("The title, 1 to 200 characters.")
    description: strawberry.Maybe[str | None] = optional("The description, 1 to 2,000 characters. Null removes it.")
    stream_url: strawberry.Maybe[str | None] = optional(
        "The http(s) address at which the livestream can be watched, at most 1,000 characters."
    )
    start_time: strawberry.Maybe[datetime | None] = optional("The start time.")
    end_time: strawberry.Maybe[datetime | None] = optional(
        "The end time, after `startTime` and at most 30 days later. Null removes it: the end is unknown."
    )
    expected_version: int | None = optional(EXPECTED_VERSION)


@strawberry.input(description="The end of a livestream.")
class EndLivestreamInput:
    expected_version: int | None = optional(EXPECTED_VERSION)


NewLivestream = Annotated[CreateLivestreamInput, argument("The livestream.")]
Changes = Annotated[UpdateLivestreamInput, argument("The changes, at least one field.")]
End = Annotated[EndLivestreamInput | None, argument("The condition of the change; by default none.")]


async def latest_livestream(info: Info) -> Livestream | None:
    return await info.context.livestreams.latest()


async def livestream(info: Info, id: LivestreamId, consistent: Consistent = False) -> Livestream | None:
    return await info.context.livestreams.by_id(
        validate.id("id", id, of=LIVESTREAM), consistently(keys.LIVESTREAM, consistent)
    )


livestreams = list_of_type(keys.LIVESTREAMS, Livestream.decoder, keys.TYPE, SortOrder.DESCENDING)


def status(parent: strawberry.Parent[Livestream], info: Info) -> LivestreamStatus:
    return parent.status(parent.event_time or info.context.now)


async def create_livestream(info: Info, input: NewLivestream) -> Livestream:
    context = info.context
    require(context.identity, keys.CREATE_LIVESTREAM)
    values = validate.fields(input, Livestream, own=TIMES)
    check_times(values["start_time"], values["end_time"])
    livestream = Livestream(
        livestream_id=new_object_id(info, "livestreamId", input.livestream_id),
        created_at=timestamp("createdAt", context.requested_at),
        **values,
    )
    return await context.livestreams.create(livestream)


async def update_livestream(info: Info, id: LivestreamId, input: Changes) -> Livestream:
    require(info.context.identity, keys.UPDATE_LIVESTREAM)
    changes = validate.changes(input, Livestream, own=TIMES)
    livestream_id, expected = validate.id("id", id, of=LIVESTREAM), validate.version(input.expected_version)
    return await info.context.livestreams.update(livestream_id, changes, expected)


async def end_livestream(info: Info, id: LivestreamId, input: End = None) -> Livestream:
    require(info.context.identity, keys.END_LIVESTREAM)
    expected = None if input is None else validate.version(input.expected_version)
    return await info.context.livestreams.end(validate.id("id", id, of=LIVESTREAM), expected)
