"""Faces on photos: SPARKS-7, SPARKS-N2 and their part of SPARKS-W1."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated

import strawberry

from datastore.errors import DomainError
from datastore.photos.face_tags import MOST_FACES
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
    """In the order in which they were tagged; one that cannot be read is an error in its own place."""
    shown = [face for face in parent.faces if person_id in (None, face.person_id)]
    if selects(info, "person"):
        for id in {face.person_id for face in shown} & parent.person_names.keys():
            info.context.persons.will_ask(id, parent.person_names[id])
    unlisted = [id for id in parent.unlisted[:MOST_FACES] if person_id in (None, id)]
    found = await asyncio.gather(
        *[_known(info.context, parent, face) for face in shown],
        *[info.context.faces.of_person_on(parent, id) for id in unlisted],
        return_exceptions=True,
    )
    return list(_faces(found))


def _faces(found: list[Face | list[Face | DomainError] | BaseException | None]) -> Iterator[Face | DomainError]:
    """Without those that are no more."""
    for one in found:
        if isinstance(one, list):
            yield from one
        elif one is not None:
            yield one  # type: ignore[misc]


async def _known(context: Context, photo: Photo, of: FaceOnPhoto) -> Face | None:
    face = await context.faces.by_key(of.face_id, photo.image_id)
    return None if face is None else replace(face, photo=photo)
