"""Photos: `IMAGE#<id>` / `IMAGE#<takenAt>`. Ids are UUIDv7, so an index sorted by `PK` is in the order of upload.

Besides `persons` (ids) of the table specification, a photo holds the parts of the keys of its persons and faces:
`personNames` (the name in the person's key, by id) and `faces` (the ids of each face and its person). So both are
batched point reads.
"""

from dataclasses import replace
from datetime import datetime

from datastore.keyspace.photos.table import BY_EMAIL, BY_TYPE, SPARKS
from datastore.model.access_patterns import AccessPattern, Who
from datastore.model.composite_keys import Key, join, split
from datastore.model.timestamps import iso
from datastore.model.versioning import version_guard

TYPE = "IMAGE"
PREFIX = "IMAGE#"


def partition(image_id: str) -> str:
    return join(TYPE, image_id)


def sort_key_at(moment: datetime) -> str:
    """Return the sort key of a photo taken at a time. Whole seconds have no fraction, as in the table specification."""
    return sort_key_from(iso(moment).replace(".000Z", "Z"))


def sort_key_from(moment: str) -> str:
    """Return the sort key of a photo, given the time as it was read from the table.

    Other programs may write another format.
    """
    return join(TYPE, moment)


def photo(image_id: str, sort: str) -> Key:
    """Return the key of a photo whose sort key was read from the table. Other programs may write another format."""
    return Key(partition(image_id), sort)


def photo_parts(key: Key) -> tuple[str, str]:
    """Return the id of a photo and the time at which it was taken (ISO 8601)."""
    return split(key.partition)[1], split(key.sort)[1]


PHOTO = AccessPattern(
    id="SPARKS-2",
    question="A photo, by the full key if the time at which it was taken is known, else by the id",
    table=SPARKS,
    operations=("GetItem", "BatchGetItem", "Query"),
    who=Who.ANY,
    fields=("photo", "Face.photo", "node", "nodes"),
    key="PK = :partition AND begins_with(SK, :prefix)",
)
PHOTO_CONSISTENT = replace(PHOTO, consistent=True, fields=("photo",))
PHOTOS = AccessPattern(
    id="SPARKS-3",
    question="All photos, newest upload first",
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
    question="The photos of a user, newest upload first",
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
    question="Change the description or tags of the caller's photo",
    table=SPARKS,
    # A photo is queried by its id if its capture time is not given, or is stored in another form.
    operations=("Query", "UpdateItem"),
    who=Who.USER,
    fields=("updatePhoto",),
    condition="email = :me",
    guard=version_guard(),
)
# The photo's persons and faces are unchanged since it was read. Other programs may write an absent attribute as null.
SAME_REVISION = "(attribute_not_exists(revision) OR attribute_type(revision, :null_type) OR revision = :revision)"
# The conditions of transactions that change a photo, and of those that delete it.
UNCHANGED = f"attribute_exists(PK) AND {SAME_REVISION}"
OWN_UNCHANGED = f"email = :me AND {SAME_REVISION}"
DELETE_PHOTO = AccessPattern(
    id="SPARKS-W1",
    question="Delete the caller's photo with its faces and files; an admin may delete any photo",
    table=SPARKS,
    # The photo and its persons are read first. The transaction adds its files to an outbox entry (an Update),
    # which is deleted once the files are.
    operations=("GetItem", "BatchGetItem", "Query", "TransactWriteItems", "DeleteItem"),
    transacts=("Update", "Delete", "ConditionCheck"),
    who=Who.USER,
    also=(Who.ADMIN,),
    fields=("deletePhoto",),
    # `:me` is the photo's user, also if an admin deletes it.
    condition=OWN_UNCHANGED,
    consistent=True,
)

PATTERNS = (PHOTO, PHOTO_CONSISTENT, PHOTOS, PHOTOS_BY_USER, UPDATE_PHOTO, DELETE_PHOTO)
