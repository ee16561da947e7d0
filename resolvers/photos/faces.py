"""Faces on photos: SPARKS-7, SPARKS-N2."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated

import strawberry

from datastore.errors import DomainError
from datastore.photos.face_tags import MAX_FACES
from datastore.photos.faces import Face
from datastore.photos.photos import FaceOnPhoto, Photo
from resolvers.shared.context import Context, Info
from resolvers.shared.selected_fields import selects

OfPerson = Annotated[
    strawberry.ID | None,
    strawberry.argument(description="The `personId` of the person whose faces are returned; by default all faces."),
]


async def faces_on_photo(
    parent: strawberry.Parent[Photo], info: Info, person_id: OfPerson = None
) -> list[Face | DomainError]:
    """Return the faces in the order of tagging. An error affects only the entry of that face."""
    listed = [face for face in parent.faces if person_id in (None, face.person_id)]
    if selects(info, "person"):
        for id in {face.person_id for face in listed} & parent.person_names.keys():
            info.context.persons.prefetch(id, parent.person_names[id])
    unlisted = [id for id in parent.unlisted[:MAX_FACES] if person_id in (None, id)]
    results = await asyncio.gather(
        *[_face(info.context, parent, face) for face in listed],
        *[info.context.faces.of_person_on(parent, id) for id in unlisted],
        return_exceptions=True,
    )
    return list(_faces(results))


def _faces(results: list[Face | list[Face | DomainError] | BaseException | None]) -> Iterator[Face | DomainError]:
    """Yield all faces except the deleted ones."""
    for result in results:
        if isinstance(result, list):
            yield from result
        elif result is not None:
            yield result  # type: ignore[misc]


async def _face(context: Context, photo: Photo, listed: FaceOnPhoto) -> Face | None:
    face = await context.faces.by_key(listed.face_id, photo.image_id)
    return None if face is None else replace(face, photo=photo)
