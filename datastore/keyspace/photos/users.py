"""Those who upload photos, known by their email: `USER#<email>` twice."""

from dataclasses import replace

from datastore.keyspace.photos.table import BY_TYPE, SPARKS
from datastore.model.access_patterns import AccessPattern, Who
from datastore.model.composite_keys import Key, join, split
from datastore.model.versioning import guard

TYPE = "USER"


def user(email: str) -> Key:
    key = join(TYPE, email)
    return Key(key, key)


def user_parts(key: Key) -> str:
    """The email of a user's key."""
    return split(key.partition)[1]


PHOTO_USER = AccessPattern(
    id="SPARKS-1",
    question="Who uploads photos, by the opaque id",
    table=SPARKS,
    operations=("GetItem", "BatchGetItem"),
    who=Who.ANY,
    fields=("photoUser", "Photo.user", "Me.photoUser", "node", "nodes"),
    key="PK = USER#<email>, SK = USER#<email>",
)
PHOTO_USER_NOW = replace(PHOTO_USER, consistent=True, fields=("photoUser",))
# Whether an email has an account is nobody else's business.
PHOTO_USER_BY_EMAIL = replace(
    PHOTO_USER,
    question="Who uploads photos, by email: that user, and admins",
    who=Who.USER,
    fields=("photoUser",),
)
PHOTO_USER_BY_EMAIL_NOW = replace(PHOTO_USER_BY_EMAIL, consistent=True)
PHOTO_USERS = AccessPattern(
    id="SPARKS-4",
    question="All who upload photos, by email",
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
    question="Enter the photo library; asked for again, it changes nothing",
    table=SPARKS,
    operations=("PutItem",),
    who=Who.USER,
    fields=("createPhotoUser",),
    # How many photos they have is counted at their first upload: they may have some already.
    condition="attribute_not_exists(PK)",
)
UPDATE_PHOTO_USER = AccessPattern(
    id="SPARKS-W1",
    question="Change one's name, or, for admins, how many photos somebody may have",
    table=SPARKS,
    operations=("UpdateItem",),
    who=Who.USER,
    fields=("updatePhotoUser",),
    condition="attribute_exists(PK)",
    guard=guard(),
)

PATTERNS = (
    PHOTO_USER,
    PHOTO_USER_NOW,
    PHOTO_USER_BY_EMAIL,
    PHOTO_USER_BY_EMAIL_NOW,
    PHOTO_USERS,
    CREATE_PHOTO_USER,
    UPDATE_PHOTO_USER,
)
