"""Photos: `IMAGE#<id>` / `IMAGE#<takenAt>`.

Beside the documented `persons` (ids) a photo keeps the full keys of whom and what it shows: `personNames` (id to the
name in the person's key) and `faces` (each face's id and person), so that both are batched point reads.
"""

from dataclasses import replace
from datetime import datetime

from datastore.keyspace.photos.table import BY_EMAIL, BY_TYPE, SPARKS
from datastore.model.access_patterns import AccessPattern, Who
from datastore.model.composite_keys import Key, join, split
from datastore.model.timestamps import iso
from datastore.model.versioning import guard

TYPE = "IMAGE"
PREFIX = "IMAGE#"


def partition(image_id: str) -> str:
    return join(TYPE, image_id)


def taken(moment: datetime) -> str:
    """The sort key of a photo: when it was taken. Whole seconds have no fraction, as in the document's items."""
    return taken_as(iso(moment).replace(".000Z", "Z"))


def taken_as(moment: str) -> str:
    """The sort key of a photo, of the moment as the table has it: it may have been written otherwise than here."""
    return join(TYPE, moment)


def photo(image_id: str, sort: str) -> Key:
    """The key of a photo whose sort key is known as the table has it: it may have been written otherwise than here."""
    return Key(partition(image_id), sort)


def photo_parts(key: Key) -> tuple[str, str]:
    """The id of a photo and the moment it was taken (ISO 8601)."""
    return split(key.partition)[1], split(key.sort)[1]


PHOTO = AccessPattern(
    id="SPARKS-2",
    question="A photo: read by its key where the moment it was taken is known, else found by its id",
    table=SPARKS,
    operations=("GetItem", "BatchGetItem", "Query"),
    who=Who.ANY,
    fields=("photo", "Face.photo", "node", "nodes"),
    key="PK = :partition AND begins_with(SK, :prefix)",
)
PHOTO_NOW = replace(PHOTO, consistent=True, fields=("photo",))
PHOTOS = AccessPattern(
    id="SPARKS-3",
    question="All photos, the newest upload first",
    table=SPARKS,
    operations=("Query",),
    who=Who.ANY,
    fields=("photos",),
    index=BY_TYPE,
    key="entityType = :partition",
    descending=True,
)
PHOTOS_BY_USER = AccessPattern(
    id="SPARKS-5",
    question="The photos of a user, the newest upload first",
    table=SPARKS,
    operations=("Query",),
    who=Who.ANY,
    fields=("photosByUser", "PhotoUser.photos"),
    index=BY_EMAIL,
    key="email = :partition AND begins_with(PK, :prefix)",
    descending=True,
    personal=True,
)
UPDATE_PHOTO = AccessPattern(
    id="SPARKS-W1",
    question="Change what one's photo says",
    table=SPARKS,
    # Where the moment it was taken is not given, it is found by its id.
    operations=("Query", "UpdateItem"),
    who=Who.USER,
    fields=("updatePhoto",),
    condition="email = :me",
    guard=guard(),
)
DELETE_PHOTO = AccessPattern(
    id="SPARKS-W1",
    question="Delete one's photo (an admin: any) with its faces and its files",
    table=SPARKS,
    # The photo and the persons on it are read before; the note of the files to remove is deleted when they are.
    operations=("GetItem", "BatchGetItem", "Query", "TransactWriteItems", "DeleteItem"),
    transacts=("Update", "Delete", "ConditionCheck"),
    who=Who.USER,
    also=(Who.ADMIN,),
    fields=("deletePhoto",),
    # The photo's own, also where an admin deletes it.
    condition="email = :me AND (attribute_not_exists(revision) OR revision = :revision)",
    consistent=True,
)
# That a photo shows whom it showed when it was read. Others write an attribute that is not there as null, too.
AS_READ = "(attribute_not_exists(revision) OR attribute_type(revision, :nothing) OR revision = :revision)"
# What a transaction asks of a photo that it changes, and of one that it deletes.
UNCHANGED = f"attribute_exists(PK) AND {AS_READ}"
OWN_UNCHANGED = f"email = :me AND {AS_READ}"

PATTERNS = (PHOTO, PHOTO_NOW, PHOTOS, PHOTOS_BY_USER, UPDATE_PHOTO, DELETE_PHOTO)
