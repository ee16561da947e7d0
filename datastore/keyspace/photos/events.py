"""Events that the photo apps log: `EVENT#<id>` / `EVENT#<at>`."""

from datetime import datetime

from datastore.items.keys import KeyParts, item_key
from datastore.keyspace.photos.table import SPARKS
from datastore.model.access_patterns import BATCH_WRITE, AccessPattern, Who

TYPE = "EVENT"


@item_key(SPARKS)
def event(event_id: str, created_at: datetime) -> KeyParts:
    return (TYPE, event_id), (TYPE, created_at)


LOG_EVENT = AccessPattern("SPARKS-W1", "Log up to 25 events of an app", SPARKS, BATCH_WRITE, Who.USER, ("logEvent",))
