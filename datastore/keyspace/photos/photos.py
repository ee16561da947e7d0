"""Photos: `IMAGE#<id>` / `IMAGE#<takenAt>`. Ids are UUIDv7, so an index sorted by `PK` is in the order of upload.

Besides `persons` (ids) of the table specification, a photo holds the parts of the keys of its persons and faces:
`personNames` (the name in the person's key, by id) and `faces` (the ids of each face and its person). So both are
batched point reads.
"""

from datetime import datetime

from datastore.items.keys import KeyParts, item_key
from datastore.keyspace.photos.table import BY_EMAIL, SPARKS, of_type
from datastore.model.access_patterns import DELETE, GET, QUERY, TRANSACT, UPDATE, AccessPattern, Who
from datastore.model.composite_keys import Key, join, split
from datastore.model.timestamps import iso
from datastore.model.versioning import version_guard

TYPE = "IMAGE"


@item_key(SPARKS)
def photo_taken(image_id: str, moment: str) -> KeyParts:
    """`moment` is the time as it is stored. Other programs may write another format than this gateway."""
    return (TYPE, image_id), (TYPE, moment)


def sort_key_at(moment: datetime) -> str:
    """Return the sort key of a photo taken at a time. Whole seconds have no fraction, as in the table specification."""
    return join(TYPE, iso(moment).replace(".000Z", "Z"))


@item_key(SPARKS)
def photo(image_id: str, sort: str) -> KeyParts:
    """Return the key of a photo whose sort key was read from the table. Other programs may write another format."""
    return (TYPE, image_id), (sort,)


@item_key(SPARKS, index=BY_EMAIL)
def photo_of_user(email: str, image_id: str) -> KeyParts:
    return (email,), (TYPE, image_id)


def photo_parts(key: Key) -> tuple[str, str]:
    """Return the id of a photo and the time at which it was taken (ISO 8601)."""
    return split(key.partition)[1], split(key.sort)[1]


PHOTO = photo_taken.query(
    "SPARKS-2",
    "A photo, by the full key if the time at which it was taken is known, else by the id",
    Who.ANY,
    ("photo", "Face.photo", "node", "nodes"),
    operations=GET + QUERY,
)
PHOTOS = of_type.query("SPARKS-3", "All photos, newest upload first", Who.ANY, ("photos",), descending=True)
PHOTOS_BY_USER = photo_of_user.query(
    "SPARKS-5",
    "The photos of a user, newest upload first",
    Who.ANY,
    ("photosByUser", "PhotoUser.photos"),
    descending=True,
    personal=True,
)
UPDATE_PHOTO = AccessPattern(
    "SPARKS-W1",
    "Change the description or tags of the caller's photo",
    SPARKS,
    # A photo is queried by its id if its capture time is not given, or is stored in another form.
    QUERY + UPDATE,
    Who.USER,
    ("updatePhoto",),
    condition="email = :me",
    guard=version_guard(),
)
# The photo's persons and faces are unchanged since it was read. Other programs may write an absent attribute as null.
SAME_REVISION = "(attribute_not_exists(revision) OR attribute_type(revision, :null_type) OR revision = :revision)"
# The conditions of transactions that change a photo, and of those that delete it.
UNCHANGED = f"attribute_exists(PK) AND {SAME_REVISION}"
OWN_UNCHANGED = f"email = :me AND {SAME_REVISION}"
DELETE_PHOTO = AccessPattern(
    "SPARKS-W1",
    "Delete the caller's photo with its faces and files; an admin may delete any photo",
    SPARKS,
    # The photo and its persons are read first. The transaction adds its files to an outbox entry (an Update),
    # which is deleted once the files are.
    GET + QUERY + TRANSACT + DELETE,
    Who.USER,
    ("deletePhoto",),
    transacts=("Update", "Delete", "ConditionCheck"),
    also=(Who.ADMIN,),
    # `:me` is the photo's user, also if an admin deletes it.
    condition=OWN_UNCHANGED,
    consistent=True,
)
