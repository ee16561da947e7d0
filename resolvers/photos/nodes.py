"""Global ids of the photo library."""

import strawberry

from datastore.keyspace.photos import photos as library_keys
from datastore.photos.faces import Face
from datastore.photos.livestreams import Livestream
from datastore.photos.persons import Person
from datastore.photos.photos import Photo
from datastore.photos.users import PhotoUser
from resolvers.shared.context import Context, Info
from resolvers.shared.node_ids import NodeReaders, global_id


def photo_user_id(parent: strawberry.Parent[PhotoUser], info: Info) -> strawberry.ID:
    return global_id("PhotoUser", info.context.services.user_ids.encrypt(parent.email))


def photo_id(parent: strawberry.Parent[Photo]) -> strawberry.ID:
    # The id contains the time as the table has it, so that the key is also exact for photos of other programs.
    return global_id("Photo", *library_keys.photo_parts(parent.key))


def person_id(parent: strawberry.Parent[Person]) -> strawberry.ID:
    return global_id("Person", parent.person_id)


def face_id(parent: strawberry.Parent[Face]) -> strawberry.ID:
    return global_id("Face", parent.face_id, parent.image_id)


def livestream_id(parent: strawberry.Parent[Livestream]) -> strawberry.ID:
    return global_id("Livestream", parent.livestream_id)


async def _photo_user(context: Context, user_id: str) -> PhotoUser | None:
    email = context.services.user_ids.decrypt(user_id)
    return None if email is None else await context.photo_users.by_email(email)


async def _photo(context: Context, image_id: str, moment: str) -> Photo | None:
    return await context.photos.as_taken(image_id, moment)


async def _person(context: Context, person_id: str) -> Person | None:
    return await context.persons.by_id(person_id)


async def _face(context: Context, face_id: str, image_id: str) -> Face | None:
    return await context.faces.by_key(face_id, image_id)


async def _livestream(context: Context, livestream_id: str) -> Livestream | None:
    return await context.livestreams.by_id(livestream_id)


NODE_READERS: NodeReaders = {
    "Face": (2, _face),
    "Livestream": (1, _livestream),
    "Person": (1, _person),
    "Photo": (2, _photo),
    "PhotoUser": (1, _photo_user),
}
