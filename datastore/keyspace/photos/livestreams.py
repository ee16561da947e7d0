"""Livestreams: `LIVESTREAM#<id>` / `LIVESTREAM#<createdAt>`.

Ids are UUIDs of version 7, so that the index sorts by time. The time in the sort key is that of the id: two creations
with the same id have the same key.
"""

from dataclasses import replace
from datetime import datetime

from datastore.items.keys import KeyParts, item_key
from datastore.keyspace.photos.table import SPARKS, of_type
from datastore.model.access_patterns import QUERY, UPDATE, Who
from datastore.model.versioning import version_guard
from datastore.queues import OverflowPolicy

TYPE = "LIVESTREAM"


@item_key(SPARKS)
def livestream(livestream_id: str, sort: str) -> KeyParts:
    """Return the key of a livestream whose sort key was read from the table."""
    return (TYPE, livestream_id), (sort,)


@item_key(SPARKS)
def livestream_at(livestream_id: str, moment: datetime) -> KeyParts:
    """Declare the form of the keys that this gateway writes."""
    return (TYPE, livestream_id), (TYPE, moment)


LIVESTREAM = livestream_at.query("SPARKS-N3", "A livestream by its id", Who.ANY, ("livestream", "node", "nodes"))
LATEST_LIVESTREAM = of_type.query(
    "SPARKS-8", "The livestream that was created last", Who.ANY, ("latestLivestream",), descending=True
)
LIVESTREAMS = of_type.query("SPARKS-8", "All livestreams, newest first", Who.ANY, ("livestreams",), descending=True)
CREATE_LIVESTREAM = livestream.put(
    "SPARKS-W1",
    "Create a livestream; a repeat with the same id changes nothing",
    Who.ADMIN,
    ("createLivestream",),
    condition="attribute_not_exists(PK)",
)
UPDATE_LIVESTREAM = livestream_at.query(
    "SPARKS-W1",
    "Change the address, texts or times of a livestream",
    Who.ADMIN,
    ("updateLivestream",),
    operations=QUERY + UPDATE,
    # The times are unchanged since they were read, so concurrent changes cannot set an end before the start.
    condition="startTime = :startWas AND endTime = :endWas",
    guard=version_guard(),
    consistent=True,
)
END_LIVESTREAM = replace(UPDATE_LIVESTREAM, question="End a livestream that is live", fields=("endLivestream",))
UPDATE_OPEN_LIVESTREAM = replace(
    UPDATE_LIVESTREAM,
    question="Change the address, texts or times of a livestream without an end",
    fields=(),
    condition="startTime = :startWas AND attribute_not_exists(endTime)",
)
# The last hundred are read at the start, or the one with the id: they start and end without a change.
LIVESTREAM_CHANGED = of_type.query(
    "SPARKS-S1",
    "Livestreams that are created or changed, start or end",
    Who.ANY,
    ("livestreamChanged",),
    descending=True,
    when_slow=OverflowPolicy.CLOSE,
)
