"""Types of the photo library that refer to each other: Strawberry resolves them once all modules are imported."""

from typing import TYPE_CHECKING, Annotated, Any

import strawberry

from datastore.keyspace.photos.users import PHOTO_USER
from resolvers.photos.users import photo_users_of_caller
from schema.fields import batch_field

if TYPE_CHECKING:
    from schema.photos.faces import Face, PersonPhotoConnection
    from schema.photos.persons import Person
    from schema.photos.photos import Photo
    from schema.photos.users import PhotoUser

LazyFace = Annotated["Face", strawberry.lazy("schema.photos.faces")]
LazyPerson = Annotated["Person", strawberry.lazy("schema.photos.persons")]
LazyPersonPhotos = Annotated["PersonPhotoConnection", strawberry.lazy("schema.photos.faces")]
LazyPhoto = Annotated["Photo", strawberry.lazy("schema.photos.photos")]
LazyPhotoUser = Annotated["PhotoUser", strawberry.lazy("schema.photos.users")]


def photo_user_field() -> Any:
    """Return the field with the photo user of a record with a `user_id`."""
    return batch_field(
        PHOTO_USER,
        resolver=photo_users_of_caller,
        depends_on="user_id",
        graphql_type=LazyPhotoUser | None,
        description="The same person in the photo library, for the caller's own user; null for all others, before "
        "`createPhotoUser`, and without a verified email address. Only a token says which email address belongs to "
        "which user id.",
    )
