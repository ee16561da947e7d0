"""Users of the photo library, identified by their email: `USER#<email>` / `USER#<email>`."""

from dataclasses import replace

from datastore.items.keys import KeyParts, item_key
from datastore.keyspace.photos.table import SPARKS, of_type
from datastore.model.access_patterns import Who
from datastore.model.versioning import version_guard

TYPE = "USER"


@item_key(SPARKS)
def user(email: str) -> KeyParts:
    return (TYPE, email), (TYPE, email)


PHOTO_USER = user.read(
    "SPARKS-1",
    "A user of the photo library, by the opaque id",
    Who.ANY,
    ("photoUser", "Photo.user", "Me.photoUser", "User.photoUser", "UserProfile.photoUser", "node", "nodes"),
)
# Only the user and admins may learn whether an email has an account.
PHOTO_USER_BY_EMAIL = replace(
    PHOTO_USER,
    question="A user of the photo library, by email; only for that user and admins",
    who=Who.USER,
    fields=("photoUser",),
)
PHOTO_USERS = of_type.query(
    "SPARKS-4", "All users of the photo library, ordered by email", Who.ADMIN, ("photoUsers",), personal=True
)
CREATE_PHOTO_USER = user.put(
    "SPARKS-W1",
    "Create the caller's user of the photo library; a repeat changes nothing",
    Who.USER,
    ("createPhotoUser",),
    # The user may have photos already: they are counted at the first upload.
    condition="attribute_not_exists(PK)",
)
UPDATE_PHOTO_USER = user.update(
    "SPARKS-W1",
    "Change the caller's name; an admin may change the limit of a user's photos",
    Who.USER,
    ("updatePhotoUser",),
    condition="attribute_exists(PK)",
    guard=version_guard(),
)
