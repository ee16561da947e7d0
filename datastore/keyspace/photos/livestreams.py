"""Livestreams: `LIVESTREAM#<id>` / `LIVESTREAM#<createdAt>`.

Ids are UUIDs of version 7, so that the index sorts by time. The time in the sort key is that of the id: two creations
with the same id have the same key.
"""

from dataclasses import replace
from datetime import datetime

from datastore.keyspace.photos.table import BY_TYPE, SPARKS
from datastore.model.access_patterns import AccessPattern, Who
from datastore.model.composite_keys import Key, join, split
from datastore.model.timestamps import iso
from datastore.model.versioning import version_guard
from datastore.queues import OverflowPolicy

TYPE = "LIVESTREAM"
PREFIX = "LIVESTREAM#"


def partition(livestream_id: str) -> str:
    return join(TYPE, livestream_id)


def livestream(livestream_id: str, sort: str) -> Key:
    """Return the key of a livestream whose sort key was read from the table."""
    return Key(partition(livestream_id), sort)


def sort_key_at(moment: datetime) -> str:
    """Return the sort key of a livestream that this gateway creates."""
    return join(TYPE, iso(moment))


def livestream_parts(key: Key) -> str:
    """Return the livestream id in a key."""
    return split(key.partition)[1]


LIVESTREAM = AccessPattern(
    id="SPARKS-N3",
    question="A livestream by its id",
    table=SPARKS,
    operations=("Query",),
    who=Who.ANY,
    fields=("livestream", "node", "nodes"),
    key="PK = :partition AND begins_with(SK, :prefix)",
)
LIVESTREAM_CONSISTENT = replace(LIVESTREAM, consistent=True, fields=())
LATEST_LIVESTREAM = AccessPattern(
    id="SPARKS-8",
    question="The livestream that was created last",
    table=SPARKS,
    operations=("Query",),
    who=Who.ANY,
    fields=("latestLivestream",),
    index=BY_TYPE,
    key="entityType = :partition",
    descending=True,
)
LIVESTREAMS = AccessPattern(
    id="SPARKS-8",
    question="All livestreams, newest first",
    table=SPARKS,
    operations=("Query",),
    who=Who.ANY,
    fields=("livestreams",),
    index=BY_TYPE,
    key="entityType = :partition",
    descending=True,
)
CREATE_LIVESTREAM = AccessPattern(
    id="SPARKS-W1",
    question="Create a livestream; a repeat with the same id changes nothing",
    table=SPARKS,
    operations=("PutItem",),
    who=Who.ADMIN,
    fields=("createLivestream",),
    condition="attribute_not_exists(PK)",
)
UPDATE_LIVESTREAM = AccessPattern(
    id="SPARKS-W1",
    question="Change the address, texts or times of a livestream",
    table=SPARKS,
    operations=("Query", "UpdateItem"),
    who=Who.ADMIN,
    fields=("updateLivestream",),
    key="PK = :partition AND begins_with(SK, :prefix)",
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
LIVESTREAM_CHANGED = AccessPattern(
    id="SPARKS-S1",
    question="Livestreams that are created or changed, start or end",
    table=SPARKS,
    # The last hundred are read at the start, or the one with the id: they start and end without a change.
    operations=("Query",),
    who=Who.ANY,
    fields=("livestreamChanged",),
    index=BY_TYPE,
    key="entityType = :partition",
    descending=True,
    when_slow=OverflowPolicy.CLOSE,
)

PATTERNS = (
    LIVESTREAM,
    LIVESTREAM_CONSISTENT,
    LATEST_LIVESTREAM,
    LIVESTREAMS,
    CREATE_LIVESTREAM,
    UPDATE_LIVESTREAM,
    UPDATE_OPEN_LIVESTREAM,
    END_LIVESTREAM,
    LIVESTREAM_CHANGED,
)
