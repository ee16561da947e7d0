"""Users of the photo library, identified by their email: `USER#<email>` / `USER#<email>`."""

from dataclasses import replace

from datastore.keyspace.photos.table import BY_TYPE, SPARKS
from datastore.model.access_patterns import AccessPattern, Who
from datastore.model.composite_keys import Key, join, split
from datastore.model.versioning import version_guard

TYPE = "USER"


def user(email: str) -> Key:
    key = join(TYPE, email)
    return Key(key, key)


def user_parts(key: Key) -> str:
    """Return the email in a user's key."""
    return split(key.partition)[1]


PHOTO_USER = AccessPattern(
    id="SPARKS-1",
    question="A user of the photo library, by the opaque id",
    table=SPARKS,
    operations=("GetItem", "BatchGetItem"),
    who=Who.ANY,
    fields=("photoUser", "Photo.user", "Me.photoUser", "node", "nodes"),
    key="PK = USER#<email>, SK = USER#<email>",
)
PHOTO_USER_CONSISTENT = replace(PHOTO_USER, consistent=True, fields=("photoUser",))
# Only the user and admins may learn whether an email has an account.
PHOTO_USER_BY_EMAIL = replace(
    PHOTO_USER,
    question="A user of the photo library, by email; only for that user and admins",
    who=Who.USER,
    fields=("photoUser",),
)
PHOTO_USER_BY_EMAIL_CONSISTENT = replace(PHOTO_USER_BY_EMAIL, consistent=True)
PHOTO_USERS = AccessPattern(
    id="SPARKS-4",
    question="All users of the photo library, ordered by email",
    table=SPARKS,
    operations=("Query",),
    who=Who.ADMIN,
    fields=("photoUsers",),
    index=BY_TYPE,
    key="entityType = :partition",
    personal=True,
)
CREATE_PHOTO_USER = AccessPattern(
    id="SPARKS-W1",
    question="Create the caller's user of the photo library; a repeat changes nothing",
    table=SPARKS,
    operations=("PutItem",),
    who=Who.USER,
    fields=("createPhotoUser",),
    # The user may have photos already: they are counted at the first upload.
    condition="attribute_not_exists(PK)",
)
UPDATE_PHOTO_USER = AccessPattern(
    id="SPARKS-W1",
    question="Change the caller's name; an admin may change the limit of a user's photos",
    table=SPARKS,
    operations=("UpdateItem",),
    who=Who.USER,
    fields=("updatePhotoUser",),
    condition="attribute_exists(PK)",
    guard=version_guard(),
)

PATTERNS = (
    PHOTO_USER,
    PHOTO_USER_CONSISTENT,
    PHOTO_USER_BY_EMAIL,
    PHOTO_USER_BY_EMAIL_CONSISTENT,
    PHOTO_USERS,
    CREATE_PHOTO_USER,
    UPDATE_PHOTO_USER,
)
