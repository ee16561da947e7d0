"""What the API says about what happened in the apps of the library: the shape only."""

from datetime import datetime

import strawberry
from strawberry.scalars import JSON

from datastore.keyspace.photos import events as patterns
from resolvers.photos import events as resolve
from schema.fields import ask


@strawberry.type(description="Something that happened in an app, as it was logged.")
class LoggedEvent:
    event_id: strawberry.ID = strawberry.field(description="Unique among events; sorts by the time it was logged.")
    event_type: str = strawberry.field(description="What kind of thing, such as PHOTO_VIEW.")
    event_data: JSON = strawberry.field(description="More about it: an object.")
    created_at: datetime = strawberry.field(description="When it happened.")


@strawberry.type
class PhotoEventMutations:
    log_event = ask(
        patterns.LOG_EVENT,
        resolver=resolve.log_event,
        graphql_type=list[LoggedEvent],
        description="Log what happened in an app, up to 25 events at once: all of them, or none where one is wrong. "
        "THROTTLED when some could not be written; the others are then.",
    )
