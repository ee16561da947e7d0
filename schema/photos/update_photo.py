"""What the API says about changing and deleting photos: the shape only."""

import strawberry

from datastore.keyspace.photos import photos as patterns
from datastore.model.access_patterns import Extent
from resolvers.photos import update_photo as resolve
from schema.fields import ask
from schema.photos.photos import Photo


@strawberry.type
class EditingMutations:
    update_photo = ask(
        patterns.UPDATE_PHOTO,
        resolver=resolve.update_photo,
        graphql_type=Photo,
        extent=Extent(written=1),
        description="Change what one's photo says. The moment it was taken stays: a `takenAt` that is not the photo's "
        "is NOT_FOUND.",
    )
    delete_photo = ask(
        patterns.DELETE_PHOTO,
        resolver=resolve.delete_photo,
        graphql_type=Photo | None,
        extent=Extent(written=4),
        description="Delete one's photo with its faces and its files: the photo as it was, or null if it is gone "
        "already. A `takenAt` that is not the photo's is NOT_FOUND. An admin may delete anybody's: its owner gets the "
        "place back.",
    )
