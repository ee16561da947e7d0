"""GraphQL types and fields of uploads."""

from datetime import datetime

import strawberry

from datastore.keyspace.photos import uploads as patterns
from datastore.model.access_patterns import Extent
from resolvers.photos import uploads as resolve
from schema.fields import described, pattern_field
from schema.nodes import object_type, value_type
from schema.photos.photos import Photo


@value_type(description="A field of a form.")
class UploadField:
    name: str = described("The name of the field.")
    value: str = described("The value of the field.")


@value_type(
    description="An upload of a file. Send a form (multipart/form-data) with the `fields`, in any order, "
    "followed by the file."
)
class UploadTarget:
    url: str = described("The address to which the client sends the form.")
    method = strawberry.field(resolver=resolve.method, graphql_type=str, description="The HTTP method: always POST.")
    fields = strawberry.field(
        resolver=resolve.form_fields,
        graphql_type=list[UploadField],
        description="The fields of the form that precede the file, at most 20, in any order.",
    )
    file_field = strawberry.field(
        resolver=resolve.file_field, graphql_type=str, description="The name of the form field that contains the file."
    )
    content_type: str = described("The required Content-Type of the file.")
    max_bytes: int = described("The maximum size of the file in bytes.")
    expires_at: datetime = described(
        "The time at which the upload target expires. `createPhoto` with the same `imageId` returns a new target."
    )


@object_type(
    "reservation.image_id",
    description="An upload reservation for a photo, with the upload targets of its files.",
)
class PhotoUpload:
    image_id = strawberry.field(
        resolver=resolve.reserved_id, graphql_type=strawberry.ID, description="The id of the future photo."
    )
    expires_at = strawberry.field(
        resolver=resolve.reserved_until,
        graphql_type=datetime,
        description="The time at which the reservation expires unless `completePhoto` confirms the upload.",
    )
    original: UploadTarget = described("The upload target of the photo, at most 40 megapixels.")
    thumbnail: UploadTarget = described(
        "The upload target of the thumbnail. It is optional: without a thumbnail the gateway creates "
        "one from the original. Its aspect ratio must equal the original's within 5 %."
    )


@strawberry.type
class UploadMutations:
    create_photo = pattern_field(
        patterns.CREATE_PHOTO,
        resolver=resolve.create_photo,
        graphql_type=PhotoUpload,
        extent=Extent(written=2),
        description="Reserve a place for a photo for one hour. CONFLICT if the caller's `uploadLimit` is reached. "
        "Upload the files, then confirm with `completePhoto`. A repeated request with the same `imageId` returns the "
        "existing reservation with new upload targets and takes no second place; the details of the photo must be the "
        "same. FORBIDDEN unless the caller's token has a verified email address.",
    )
    complete_photo = pattern_field(
        patterns.COMPLETE_PHOTO,
        resolver=resolve.complete_photo,
        graphql_type=Photo,
        extent=Extent(written=2),
        description="Confirm that the original is uploaded. The gateway checks the files and adds the photo to the "
        "library. BAD_USER_INPUT if it rejects a file, to be uploaded again: the error's extensions contain the "
        "`file` (original or thumbnail) and the `reason` (NOT_UPLOADED, NOT_A_PICTURE, WRONG_TYPE, WRONG_SHAPE, "
        "TOO_LARGE, TOO_MANY_PIXELS or TOO_MANY_SCANS). A repeated request returns the photo.",
    )
    cancel_photo_upload = pattern_field(
        patterns.CANCEL_PHOTO_UPLOAD,
        resolver=resolve.cancel_photo_upload,
        graphql_type=bool,
        extent=Extent(written=2),
        description="Cancel an unconfirmed upload of the caller: its place is free at once, and its files are "
        "deleted. Return whether there was one. A confirmed photo stays unchanged.",
    )
