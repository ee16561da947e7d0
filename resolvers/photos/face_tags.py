"""Mutations that tag and untag faces (SPARKS-W1)."""

from typing import Annotated

import strawberry

from datastore.errors import BadUserInput
from datastore.keyspace.photos import faces as keys
from datastore.model.timestamps import from_iso, iso
from datastore.photos.faces import Face, FaceBoundingBox
from resolvers.photos.photo_access import moderator, uploader
from resolvers.photos.photos import TakenAt
from resolvers.photos.update_photo import ImageId, given_time
from resolvers.shared import validation as validate
from resolvers.shared.client_ids import new_object_id
from resolvers.shared.context import Info

# Smaller fractions count as 0: DynamoDB stores no positive number below 1E-130.
SMALLEST = 1e-9
SIDES = ("left", "top", "width", "height")


@strawberry.input(
    description="The position of a face, in fractions of the image's width and height, 0 to 1. It must lie within "
    "the image."
)
class BoundingBoxInput:
    left: float = strawberry.field(description="The distance from the left edge.")
    top: float = strawberry.field(description="The distance from the upper edge.")
    width: float = strawberry.field(description="The width, more than 0. `left` plus `width` must be at most 1.")
    height: float = strawberry.field(description="The height, more than 0. `top` plus `height` must be at most 1.")


@strawberry.input(description="A person's face to tag on a photo of the caller.")
class TagFaceInput:
    image_id: strawberry.ID = strawberry.field(description="The photo's `imageId`.")
    person_id: strawberry.ID = strawberry.field(description="The person's `personId`.")
    bounding_box: BoundingBoxInput = strawberry.field(description="The position of the face.")
    confidence: float = strawberry.field(
        description="The probability that the face is this person's, 0 to 1.", default=1.0
    )
    face_id: strawberry.ID | None = strawberry.field(
        default=None,
        description="An id chosen by the client, which makes repeated requests safe: a UUID of version 7 in lower "
        "case, whose time is at most one day ago and at most five minutes ahead. Use it for one face only: "
        "requests for two photos at the same time may create a face on each. By default the gateway creates one.",
    )


NewFace = Annotated[TagFaceInput, strawberry.argument(description="The face to tag.")]
FaceId = Annotated[strawberry.ID, strawberry.argument(description="The face's `faceId`.")]


async def tag_face(info: Info, input: NewFace, taken_at: TakenAt = None) -> Face:
    context = info.context
    email = uploader(context.identity, keys.TAG_FACE)
    return await context.face_tags.tag(
        _face(info, input),
        email,
        taken_at=given_time(taken_at),
        may_exist=input.face_id is not None or context.is_retry,
    )


async def untag_face(info: Info, face_id: FaceId, image_id: ImageId) -> Face | None:
    email, is_admin = moderator(info.context.identity, keys.UNTAG_FACE)
    return await info.context.face_tags.untag(
        validate.id("faceId", face_id), validate.id("imageId", image_id), email, is_admin=is_admin
    )


def _face(info: Info, input: TagFaceInput) -> Face:
    context = info.context
    return Face(
        face_id=new_object_id(info, "faceId", input.face_id),
        image_id=validate.id("imageId", input.image_id),
        person_id=validate.id("personId", input.person_id),
        confidence=_fraction("confidence", input.confidence),
        bounding_box=_box(input.bounding_box),
        created_at=from_iso(iso(context.requested_at)),
        photo_sort=None,
    )


def _box(box: BoundingBoxInput) -> FaceBoundingBox:
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
