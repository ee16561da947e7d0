"""GraphQL types and fields of photos."""

from datetime import datetime

import strawberry

from datastore.keyspace.photos import faces as face_patterns
from datastore.keyspace.photos import persons as person_patterns
from datastore.keyspace.photos import photos as patterns
from datastore.keyspace.photos import users as user_patterns
from datastore.model.access_patterns import Extent
from datastore.photos import photos as records
from resolvers.photos import faces as resolve_faces
from resolvers.photos import persons as resolve_persons
from resolvers.photos import photos as resolve
from resolvers.photos import users as resolve_users
from schema.connections import Connection
from schema.fields import VERSION, batch_field, described, pattern_field
from schema.nodes import Node, node_type
from schema.photos.lazy_types import LazyFace, LazyPerson
from schema.photos.users import PhotoUser


@node_type(
    records.Photo,
    patterns.PHOTO,
    parts=resolve.PHOTO_PARTS,
    id=resolve.global_photo_id,
    read=lambda context, *key: context.photos.as_taken(*key),
    description="A photo of the library.",
)
class Photo(Node):
    image_id: strawberry.ID = described("The photo's id, unique among photos. Ids sort by the time of the upload.")
    taken_at: datetime = described("The time at which the photo was taken.")
    created_at: datetime = described("The time of the upload.")
    version: int = described(VERSION)
    description: str | None = described("The description, 1 to 1,000 characters; null without one.")
    tags: list[str] = described(
        "The tags, in the owner's order, in lower case: this API stores at most 20, other programs may store more."
    )
    content_type: str | None = described("The media type of the original, such as image/jpeg; null if it is unknown.")
    size: int | None = described("The size of the original in bytes; null if it is unknown.")
    camera: str | None = described("The maker and model of the camera; null if they are unknown.")
    width: int | None = described("The width in pixels in display orientation; null if it is unknown.")
    height: int | None = described("The height in pixels in display orientation; null if it is unknown.")
    original_url = strawberry.field(
        resolver=resolve.original_url,
        graphql_type=str | None,
        description="The signed address of the original, valid for about an hour. Originals are stored without "
        "location and other metadata. If the gateway is configured to keep metadata, or the photo is known to "
        "contain some, the address is visible to the owner and admins only, and null for all other callers.",
    )
    thumbnail_url = strawberry.field(
        resolver=resolve.thumbnail_url,
        graphql_type=str | None,
        description="The signed address of the thumbnail, valid for about an hour. Null if the address would contain "
        "the owner's email address and the caller may not see it.",
    )
    user_id = strawberry.field(
        resolver=resolve_users.user_id, graphql_type=strawberry.ID, description="The `PhotoUser.userId` of the owner."
    )
    email = strawberry.field(
        resolver=resolve_users.email,
        graphql_type=str | None,
        description="The owner's email address. Visible to the owner and admins; null for all other callers.",
    )
    user = batch_field(
        user_patterns.PHOTO_USER,
        resolver=resolve_users.users_by_email,
        depends_on="email",
        graphql_type=PhotoUser | None,
        description="The owner's present record; null if there is none.",
    )
    person_ids: list[strawberry.ID] = described(
        "The ids of the persons on the photo, each once, in no order: at most one for each face."
    )
    persons = pattern_field(
        person_patterns.PERSON,
        resolver=resolve_persons.persons_on_photo,
        graphql_type=list[LazyPerson | None],
        extent=Extent(size=3, per_entry=True),
        description="The persons on the photo, each once, in the order of `personIds`: at most one for each face. "
        "Deleted persons are left out; an entry that cannot be read is null, with an error.",
    )
    faces = pattern_field(
        face_patterns.FACE,
        resolver=resolve_faces.faces_on_photo,
        graphql_type=list[LazyFace | None],
        extent=Extent(size=3, per_entry=True),
        description="The faces on the photo, in the order of tagging: this API tags at most 45, other programs may tag "
        "more. An entry that cannot be read is null, with an error.",
    )


@strawberry.type
class LibraryQueries:
    photo = pattern_field(
        patterns.PHOTO,
        resolver=resolve.photo,
        graphql_type=Photo | None,
        description="Return a photo; null if there is none.",
    )
    photos = pattern_field(
        patterns.PHOTOS,
        resolver=resolve.photos,
        graphql_type=Connection[Photo],
        description="Return all photos, newest upload first.",
    )
    photos_by_user = pattern_field(
        patterns.PHOTOS_BY_USER,
        resolver=resolve.photos_by_user,
        graphql_type=Connection[Photo],
        description="Return the photos of a user, newest upload first. Name the user by either "
        "`userId` or `email`; both are open to every caller. The list is empty for an unknown user.",
    )


@strawberry.type
class EditingMutations:
    update_photo = pattern_field(
        patterns.UPDATE_PHOTO,
        resolver=resolve.update_photo,
        graphql_type=Photo,
        extent=Extent(written=1),
        description="Change the description or tags of a photo of the caller, and return the photo. `takenAt` "
        "cannot be changed: NOT_FOUND if it differs from the photo's. Admins may delete, but not change, the photos of "
        "others.",
    )
    delete_photo = pattern_field(
        patterns.DELETE_PHOTO,
        resolver=resolve.delete_photo,
        graphql_type=Photo | None,
        extent=Extent(written=4),
        description="Delete a photo of the caller with its faces and files. Return the photo as it was, or null "
        "if it does not exist. NOT_FOUND if `takenAt` differs from the photo's. Admins may delete any photo. The "
        "owner may upload another photo in its place.",
    )
