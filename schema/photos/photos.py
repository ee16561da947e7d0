"""What the API says about photos: the shape only."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

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
from resolvers.shared import node_ids as nodes
from schema.connections import Connection, Node
from schema.fields import VERSION, ask
from schema.photos.users import PhotoUser

if TYPE_CHECKING:
    from schema.photos.faces import Face
    from schema.photos.persons import Person

LazyFace = Annotated["Face", strawberry.lazy("schema.photos.faces")]
LazyPerson = Annotated["Person", strawberry.lazy("schema.photos.persons")]


@strawberry.type(description="A photo.")
class Photo(Node):
    id = strawberry.field(resolver=nodes.photo_id, graphql_type=strawberry.ID, description="Globally unique.")
    image_id: strawberry.ID = strawberry.field(description="Unique among photos; sorts by the time of the upload.")
    taken_at: datetime = strawberry.field(description="When it was taken.")
    created_at: datetime = strawberry.field(description="When it was uploaded.")
    version: int = strawberry.field(description=VERSION)
    description: str | None = strawberry.field(description="What it shows, in words.")
    tags: list[str] = strawberry.field(description="Words to find it by, in lower case.")
    content_type: str | None = strawberry.field(description="The type of the original, such as image/jpeg.")
    size: int | None = strawberry.field(description="The bytes of the original.")
    camera: str | None = strawberry.field(description="Maker and model of the camera that took it.")
    width: int | None = strawberry.field(description="In pixels, as it is looked at.")
    height: int | None = strawberry.field(description="In pixels, as it is looked at.")
    original_url = strawberry.field(
        resolver=resolve.original_url,
        graphql_type=str | None,
        description="Where the original is, signed and good for about an hour. Originals are stored without location "
        "and other metadata. Where the gateway keeps metadata, or a photo is known to have some, it is null for others "
        "than the user and admins.",
    )
    thumbnail_url = strawberry.field(
        resolver=resolve.thumbnail_url,
        graphql_type=str | None,
        description="Where a small picture of it is, signed and good for about an hour.",
    )
    user_id = strawberry.field(
        resolver=resolve_users.user_id, graphql_type=strawberry.ID, description="Whose it is: a `PhotoUser.userId`."
    )
    email = strawberry.field(
        resolver=resolve_users.email,
        graphql_type=str | None,
        description="The email of whose it is; null for others than the user and admins.",
    )
    user = ask(
        user_patterns.PHOTO_USER,
        resolver=resolve_users.user,
        graphql_type=PhotoUser | None,
        description="Whose it is, as they are now.",
    )
    person_ids: list[strawberry.ID] = strawberry.field(description="Who is on it.")
    persons = ask(
        person_patterns.PERSON,
        resolver=resolve_persons.persons_on_photo,
        graphql_type=list[LazyPerson | None],
        extent=Extent(size=3, each=True),
        description="Who is on it, as they are now, each once.",
    )
    faces = ask(
        face_patterns.FACE,
        resolver=resolve_faces.faces_on_photo,
        graphql_type=list[LazyFace | None],
        extent=Extent(size=3, each=True),
        description="The faces on it.",
    )

    @classmethod
    def is_type_of(cls, value: Any, _info: object) -> bool:
        return isinstance(value, records.Photo)


@strawberry.type
class LibraryQueries:
    photo = ask(
        patterns.PHOTO, resolver=resolve.photo, graphql_type=Photo | None, description="A photo by its id, or null."
    )
    photos = ask(
        patterns.PHOTOS,
        resolver=resolve.photos,
        graphql_type=Connection[Photo],
        description="All photos, the newest upload first.",
    )
    photos_by_user = ask(
        patterns.PHOTOS_BY_USER,
        resolver=resolve.photos_by_user,
        graphql_type=Connection[Photo],
        description="The photos of a user, named by `userId` or by `email`, the newest upload first.",
    )
