"""Faces on photos: SPARKS-7, SPARKS-N2 and their part of SPARKS-W1."""

import asyncio
from dataclasses import replace
from typing import Annotated

import strawberry

from datastore.errors import DomainError
from datastore.photos.faces import Face
from datastore.photos.library import FaceOnPhoto, Photo
from resolvers.context import Context, Info
from resolvers.selection import selects

OfPerson = Annotated[
    strawberry.ID | None, strawberry.argument(description="Only the faces of this person; all if nothing is said.")
]


async def faces_on_photo(
    parent: strawberry.Parent[Photo], info: Info, person_id: OfPerson = None
) -> list[Face | DomainError]:
    """In the order in which they were tagged; one that cannot be read is an error in its own place."""
    shown = [face for face in parent.faces if person_id in (None, face.person_id)]
    if selects(info, "person"):
        for id in {face.person_id for face in shown} & parent.person_names.keys():
            info.context.persons.will_ask(id, parent.person_names[id])
    found = await asyncio.gather(*[_known(info.context, parent, face) for face in shown], return_exceptions=True)
    # One that is no more is none that can be shown.
    return [face for face in found if face is not None]  # type: ignore[misc]


async def _known(context: Context, photo: Photo, of: FaceOnPhoto) -> Face | None:
    face = await context.faces.by_key(of.face_id, photo.image_id)
    return None if face is None else replace(face, photo=photo)
