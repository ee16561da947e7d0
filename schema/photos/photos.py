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
from resolvers.photos import nodes
from resolvers.photos import persons as resolve_persons
from resolvers.photos import photos as resolve
from resolvers.photos import users as resolve_users
from schema.connections import Connection, Node, is_record, node_id
from schema.fields import VERSION, pattern_field
from schema.photos.lazy_types import LazyFace, LazyPerson
from schema.photos.users import PhotoUser


@strawberry.type(description="A photo of the library.")
class Photo(Node):
    id = node_id(nodes.photo_id)
    image_id: strawberry.ID = strawberry.field(
        description="The photo's id, unique among photos. Ids sort by the time of the upload."
    )
    taken_at: datetime = strawberry.field(description="The time at which the photo was taken.")
    created_at: datetime = strawberry.field(description="The time of the upload.")
    version: int = strawberry.field(description=VERSION)
    description: str | None = strawberry.field(description="The description, 1 to 1,000 characters; null without one.")
    tags: list[str] = strawberry.field(description="The tags, in lower case.")
    content_type: str | None = strawberry.field(
        description="The media type of the original, such as image/jpeg; null if it is unknown."
    )
    size: int | None = strawberry.field(description="The size of the original in bytes; null if it is unknown.")
    camera: str | None = strawberry.field(description="The maker and model of the camera; null if they are unknown.")
    width: int | None = strawberry.field(
        description="The width in pixels in display orientation; null if it is unknown."
    )
    height: int | None = strawberry.field(
        description="The height in pixels in display orientation; null if it is unknown."
    )
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
        description="The signed address of the thumbnail, valid for about an hour.",
    )
    user_id = strawberry.field(
        resolver=resolve_users.user_id, graphql_type=strawberry.ID, description="The `PhotoUser.userId` of the owner."
    )
    email = strawberry.field(
        resolver=resolve_users.email,
        graphql_type=str | None,
        description="The owner's email address. Visible to the owner and admins; null for all other callers.",
    )
    user = pattern_field(
        user_patterns.PHOTO_USER,
        resolver=resolve_users.user,
        graphql_type=PhotoUser | None,
        description="The owner's present record; null if there is none.",
    )
    person_ids: list[strawberry.ID] = strawberry.field(description="The ids of the persons on the photo.")
    persons = pattern_field(
        person_patterns.PERSON,
        resolver=resolve_persons.persons_on_photo,
        graphql_type=list[LazyPerson | None],
        extent=Extent(size=3, per_entry=True),
        description="The persons on the photo, each once.",
    )
    faces = pattern_field(
        face_patterns.FACE,
        resolver=resolve_faces.faces_on_photo,
        graphql_type=list[LazyFace | None],
        extent=Extent(size=3, per_entry=True),
        description="The faces on the photo, in the order of tagging.",
    )

    is_type_of = is_record(records.Photo)


@strawberry.type
class LibraryQueries:
    photo = pattern_field(
        patterns.PHOTO,
        resolver=resolve.photo,
        graphql_type=Photo | None,
        description="Return a photo by its id; null if there is none.",
    )
    photos = pattern_field(
        patterns.PHOTOS,
        resolver=resolve.photos,
        graphql_type=Connection[Photo],
        description="Return all photos, by default the newest upload first.",
    )
    photos_by_user = pattern_field(
        patterns.PHOTOS_BY_USER,
        resolver=resolve.photos_by_user,
        graphql_type=Connection[Photo],
        description="Return the photos of a user, by default the newest upload first. Name the user by either "
        "`userId` or `email`.",
    )
