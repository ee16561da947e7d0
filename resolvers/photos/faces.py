"""Faces on photos: SPARKS-7, SPARKS-N2 and the mutations that tag and untag faces (SPARKS-W1)."""

import asyncio
from collections.abc import Iterator
from typing import Annotated

import strawberry
from msgspec.structs import replace

from datastore.errors import BadUserInput, DomainError
from datastore.keyspace.photos import faces as keys
from datastore.model.timestamps import from_iso, iso
from datastore.photos.face_tags import MAX_FACES
from datastore.photos.faces import Face, FaceBoundingBox
from datastore.photos.photos import FaceOnPhoto, Photo
from resolvers.photos.photo_access import moderator, uploader
from resolvers.photos.photos import PhotoId, TakenAt, photo_key
from resolvers.shared import validation as validate
from resolvers.shared.arguments import argument, optional, required
from resolvers.shared.client_ids import new_object_id
from resolvers.shared.context import Context, Info
from resolvers.shared.global_ids import GLOBAL_ID_PREFIX, key_of, local_id
from resolvers.shared.selected_fields import selects

OfPerson = Annotated[
    strawberry.ID | None,
    argument("The `personId` or `id` of the person whose faces are returned; by default all faces."),
]
# Smaller fractions count as 0: DynamoDB stores no positive number below 1E-130.
SMALLEST = 1e-9
SIDES = ("left", "top", "width", "height")


async def faces_on_photo(
    parent: strawberry.Parent[Photo], info: Info, person_id: OfPerson = None
) -> list[Face | DomainError]:
    """Return the faces in the order of tagging. An error affects only the entry of that face."""
    if person_id is not None:
        person_id = strawberry.ID(local_id("personId", person_id, "Person"))
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


@strawberry.input(
    description="The position of a face, in fractions of the image's width and height, 0 to 1. It must lie within "
    "the image."
)
class FaceBoundingBoxInput:
    left: float = required("The distance from the left edge, 0 to 1.")
    top: float = required("The distance from the upper edge, 0 to 1.")
    width: float = required("The width, more than 0. `left` plus `width` must be at most 1.")
    height: float = required("The height, more than 0. `top` plus `height` must be at most 1.")


@strawberry.input(description="A person's face to tag on a photo.")
class TagFaceInput:
    person_id: strawberry.ID = required("The person's `personId` or `id`.")
    bounding_box: FaceBoundingBoxInput = required("The position of the face.")
    confidence: float = strawberry.field(
        description="The probability that the face is this person's, 0 to 1.", default=1.0
    )
    face_id: strawberry.ID | None = optional(
        "An id chosen by the client, which makes repeated requests safe: a UUID of version 7 in lower "
        "case, whose time is at most one day ago and at most five minutes ahead. Use it for one face only: "
        "requests for two photos at the same time may create a face on each. By default the gateway creates one."
    )


NewFace = Annotated[TagFaceInput, argument("The face to tag.")]
FaceId = Annotated[strawberry.ID, argument("The face's `faceId` or `id`.")]


async def tag_face(info: Info, image_id: PhotoId, input: NewFace, taken_at: TakenAt = None) -> Face:
    context = info.context
    email = uploader(context.identity, keys.TAG_FACE)
    photo_id, time = photo_key("imageId", image_id, taken_at)
    return await context.face_tags.tag(
        _new_face(info, photo_id, input),
        email,
        taken_at=time,
        may_exist=input.face_id is not None or context.is_retry,
    )


async def untag_face(info: Info, face_id: FaceId, image_id: PhotoId) -> Face | None:
    email, is_admin = moderator(info.context.identity, keys.UNTAG_FACE)
    photo_id, _ = photo_key("imageId", image_id)
    return await info.context.face_tags.untag(_local_face_id(face_id, photo_id), photo_id, email, is_admin=is_admin)


def _local_face_id(face_id: str, image_id: str) -> str:
    """Return the `faceId` of a face on a photo. Raises `BadUserInput` for the global id of a face on another one."""
    parts = key_of("faceId", face_id, "Face") if face_id.startswith(GLOBAL_ID_PREFIX) else None
    if parts is None:
        return validate.id("faceId", face_id)
    if parts[1:] != [image_id]:
        raise BadUserInput("`faceId` is a global id that does not fit `imageId`.", field="faceId")
    return validate.id("faceId", parts[0])


def _new_face(info: Info, image_id: str, input: TagFaceInput) -> Face:
    context = info.context
    return Face(
        face_id=new_object_id(info, "faceId", input.face_id),
        image_id=image_id,
        person_id=validate.id("personId", input.person_id, of=("Person",)),
        confidence=_fraction("confidence", input.confidence),
        bounding_box=_box(input.bounding_box),
        created_at=from_iso(iso(context.requested_at)),
        photo_sort=None,
    )


def _box(box: FaceBoundingBoxInput) -> FaceBoundingBox:
    sides = {side: _fraction(f"boundingBox.{side}", getattr(box, side)) for side in SIDES}
    for edge, size in (("left", "width"), ("top", "height")):
        field = f"boundingBox.{size}"
        if not sides[size]:
            raise BadUserInput(f"`{field}` must be more than 0.", field=field)
        if sides[edge] + sides[size] > 1 + SMALLEST:  # floating-point sums may slightly exceed 1
            raise BadUserInput(f"`{field}` plus `boundingBox.{edge}` must be at most 1.", field=field)
    return FaceBoundingBox(**sides)


def _fraction(field: str, value: float) -> float:
    fraction = validate.number(field, value, minimum=0.0, maximum=1.0)
    return fraction if fraction >= SMALLEST else 0.0
