"""What the API says about uploads: the shape only."""

from datetime import datetime

import strawberry

from datastore.keyspace.photos import uploads as patterns
from datastore.model.access_patterns import Extent
from resolvers.photos import uploads as resolve
from resolvers.photos.uploads import UploadField
from schema.fields import ask
from schema.photos.photos import Photo


@strawberry.type(
    description="How to upload a file: send a form (multipart/form-data) with the fields, in their order, and then "
    "the file."
)
class UploadTarget:
    url: str = strawberry.field(description="Where to send the form to.")
    method = strawberry.field(
        resolver=resolve.method, graphql_type=str, description="How to send the form: always POST."
    )
    fields = strawberry.field(
        resolver=resolve.form_fields,
        graphql_type=list[UploadField],
        description="The fields of the form that come before the file.",
    )
    file_field = strawberry.field(
        resolver=resolve.file_field, graphql_type=str, description="The name of the field that the file is."
    )
    content_type: str = strawberry.field(description="The Content-Type of the file: of no other it is taken.")
    max_bytes: int = strawberry.field(description="How many bytes the file may have.")
    expires_at: datetime = strawberry.field(
        description="Until when it can be uploaded. `createPhoto` with the same `imageId` answers a fresh target."
    )


@strawberry.type(description="A place that is reserved for a photo, and where to upload its files.")
class PhotoUpload:
    image_id = strawberry.field(
        resolver=resolve.reserved_id, graphql_type=strawberry.ID, description="The id that the photo will have."
    )
    expires_at = strawberry.field(
        resolver=resolve.reserved_until,
        graphql_type=datetime,
        description="Until when the upload can be confirmed; the place is free again then.",
    )
    original: UploadTarget = strawberry.field(description="Where the photo itself goes, at most 40 megapixels.")
    thumbnail: UploadTarget = strawberry.field(
        description="Where a small picture of it goes, if the client makes one; else one is made of the original. "
        "It must be as wide for its height as the original, within 5 %."
    )


@strawberry.type
class UploadMutations:
    create_photo = ask(
        patterns.CREATE_PHOTO,
        resolver=resolve.create_photo,
        graphql_type=PhotoUpload,
        extent=Extent(written=2),
        description="Reserve a place for a photo for an hour, within one's `uploadLimit`, to upload its files and "
        "confirm with `completePhoto`. Asked for again with the same `imageId`, it answers the reservation there is, "
        "with fresh targets, and takes no second place; what is said of the photo must be the same.",
    )
    complete_photo = ask(
        patterns.COMPLETE_PHOTO,
        resolver=resolve.complete_photo,
        graphql_type=Photo,
        extent=Extent(written=2),
        description="Confirm that the original is uploaded: it is checked, and in the library from now on. If the "
        "files are refused, they can be uploaded again: the error's extensions tell the `file` (original or thumbnail) "
        "and the `reason` (NOT_UPLOADED, NOT_A_PICTURE, WRONG_TYPE, WRONG_SHAPE, TOO_LARGE, TOO_MANY_PIXELS or "
        "TOO_MANY_SCANS). Asked for again, it answers the photo.",
    )
    cancel_upload = ask(
        patterns.CANCEL_UPLOAD,
        resolver=resolve.cancel_upload,
        graphql_type=bool,
        extent=Extent(written=2),
        description="Give up an upload of one's own that is not confirmed: its place is free at once, and its files "
        "are removed. Whether there was one: a photo that is confirmed already stays as it is.",
    )
