"""Events that the photo apps log: `EVENT#<id>` / `EVENT#<at>`."""

from datetime import datetime

from datastore.keyspace.photos.table import SPARKS
from datastore.model.access_patterns import AccessPattern, Who
from datastore.model.composite_keys import Key, join
from datastore.model.timestamps import iso

TYPE = "EVENT"


def event(event_id: str, at: datetime) -> Key:
    return Key(join(TYPE, event_id), join(TYPE, iso(at)))


LOG_EVENT = AccessPattern(
    id="SPARKS-W1",
    question="Log up to 25 events of an app",
    table=SPARKS,
    operations=("BatchWriteItem",),
    who=Who.USER,
    fields=("logEvent",),
)

PATTERNS = (LOG_EVENT,)
