"""GraphQL mutations that update and delete photos."""

import strawberry

from datastore.keyspace.photos import photos as patterns
from datastore.model.access_patterns import Extent
from resolvers.photos import update_photo as resolve
from schema.fields import pattern_field
from schema.photos.photos import Photo


@strawberry.type
class EditingMutations:
    update_photo = pattern_field(
        patterns.UPDATE_PHOTO,
        resolver=resolve.update_photo,
        graphql_type=Photo,
        extent=Extent(written=1),
        description="Change the description or tags of a photo of the caller, and return the photo. `takenAt` "
        "cannot be changed: NOT_FOUND if it differs from the photo's.",
    )
    delete_photo = pattern_field(
        patterns.DELETE_PHOTO,
        resolver=resolve.delete_photo,
        graphql_type=Photo | None,
        extent=Extent(written=4),
        description="Delete a photo of the caller with its faces and files. Return the photo as it was, or null "
        "if it does not exist. NOT_FOUND if `takenAt` differs from the photo's. Admins may delete any photo. The "
        "owner may upload another photo in its place.",
    )
