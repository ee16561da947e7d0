"""GraphQL types and fields of logged app events."""

from datetime import datetime

import strawberry
from strawberry.scalars import JSON

from datastore.keyspace.photos import events as patterns
from resolvers.photos import events as resolve
from schema.fields import described, pattern_field
from schema.nodes import object_type


@object_type("event_id", description="A logged event of an app.")
class LoggedEvent:
    event_id: strawberry.ID = described("The event's id, unique among events. Ids sort by the time of logging.")
    event_type: str = described("The type of the event, such as PHOTO_VIEW.")
    event_data: JSON = described("The details of the event, an object.")
    created_at: datetime = described("The time of the event.")


@strawberry.type
class PhotoEventMutations:
    log_event = pattern_field(
        patterns.LOG_EVENT,
        resolver=resolve.log_event,
        graphql_type=list[LoggedEvent],
        description="Log up to 25 events of an app, and return them in the order of the input. If one of them is "
        "invalid, none is stored. THROTTLED if some could not be written; the others are stored.",
    )
