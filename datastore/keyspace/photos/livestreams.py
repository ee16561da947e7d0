"""Livestreams: `LIVESTREAM#<id>` / `LIVESTREAM#<createdAt>`.

Ids are UUIDs of version 7, so that the index sorts by time. The moment in the sort key is the id's own: of two that are
announced with one id there is one.
"""

from dataclasses import replace
from datetime import datetime

from datastore.keyspace.photos.table import BY_TYPE, SPARKS
from datastore.model.access_patterns import AccessPattern, Who
from datastore.model.composite_keys import Key, join, split
from datastore.model.timestamps import iso
from datastore.model.versioning import guard
from datastore.queues import OverflowPolicy

TYPE = "LIVESTREAM"
PREFIX = "LIVESTREAM#"


def partition(livestream_id: str) -> str:
    return join(TYPE, livestream_id)


def livestream(livestream_id: str, sort: str) -> Key:
    """The key of a livestream whose sort key is known as the table has it."""
    return Key(partition(livestream_id), sort)


def created(moment: datetime) -> str:
    """The sort key of one that is made by this gateway."""
    return join(TYPE, iso(moment))


def livestream_parts(key: Key) -> str:
    """The id of a livestream."""
    return split(key.partition)[1]


LIVESTREAM = AccessPattern(
    id="SPARKS-N3",
    question="A livestream, found by its id",
    table=SPARKS,
    operations=("Query",),
    who=Who.ANY,
    fields=("livestream", "node", "nodes"),
    key="PK = :partition AND begins_with(SK, :prefix)",
)
LIVESTREAM_NOW = replace(LIVESTREAM, consistent=True, fields=())
LATEST_LIVESTREAM = AccessPattern(
    id="SPARKS-8",
    question="The livestream that was made last",
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
    question="All livestreams, the last made first",
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
    question="Announce a livestream; asked for again with the same id, it changes nothing",
    table=SPARKS,
    operations=("PutItem",),
    who=Who.ADMIN,
    fields=("createLivestream",),
    condition="attribute_not_exists(PK)",
)
UPDATE_LIVESTREAM = AccessPattern(
    id="SPARKS-W1",
    question="Change a livestream: its address, words or times",
    table=SPARKS,
    operations=("Query", "UpdateItem"),
    who=Who.ADMIN,
    fields=("updateLivestream",),
    key="PK = :partition AND begins_with(SK, :prefix)",
    # The times as they were read: of two changes at once none makes it end before it begins.
    condition="startTime = :startWas AND endTime = :endWas",
    guard=guard(),
    consistent=True,
)
END_LIVESTREAM = replace(UPDATE_LIVESTREAM, question="End a livestream that is live", fields=("endLivestream",))
UPDATE_OPEN_LIVESTREAM = replace(
    UPDATE_LIVESTREAM,
    question="The same of one whose end is not known",
    fields=(),
    condition="startTime = :startWas AND attribute_not_exists(endTime)",
)
LIVESTREAM_CHANGED = AccessPattern(
    id="SPARKS-S1",
    question="Livestreams that are announced or changed, begin or end",
    table=SPARKS,
    # At the start, the hundred made last: they may begin or end without being changed. With an id that one.
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
    LIVESTREAM_NOW,
    LATEST_LIVESTREAM,
    LIVESTREAMS,
    CREATE_LIVESTREAM,
    UPDATE_LIVESTREAM,
    UPDATE_OPEN_LIVESTREAM,
    END_LIVESTREAM,
    LIVESTREAM_CHANGED,
)
