"""GraphQL types and fields of logged app events."""

from datetime import datetime

import strawberry
from strawberry.scalars import JSON

from datastore.keyspace.photos import events as patterns
from resolvers.photos import events as resolve
from schema.fields import pattern_field


@strawberry.type(description="A logged event of an app.")
class LoggedEvent:
    event_id: strawberry.ID = strawberry.field(
        description="The event's id, unique among events. Ids sort by the time of logging."
    )
    event_type: str = strawberry.field(description="The type of the event, such as PHOTO_VIEW.")
    event_data: JSON = strawberry.field(description="The details of the event, an object.")
    created_at: datetime = strawberry.field(description="The time of the event.")


@strawberry.type
class PhotoEventMutations:
    log_event = pattern_field(
        patterns.LOG_EVENT,
        resolver=resolve.log_event,
        graphql_type=list[LoggedEvent],
        description="Log up to 25 events of an app, and return them. If one of them is invalid, none is stored. "
        "THROTTLED if some could not be written; the others are stored.",
    )
