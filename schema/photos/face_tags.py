"""What the API says about who is where on one's photos: the shape only."""

import strawberry

from datastore.keyspace.photos import faces as patterns
from datastore.model.access_patterns import Extent
from resolvers.photos import face_tags as resolve
from schema.fields import ask
from schema.photos.faces import Face


@strawberry.type
class TaggingMutations:
    tag_face = ask(
        patterns.TAG_FACE,
        resolver=resolve.tag_face,
        graphql_type=Face,
        extent=Extent(written=3),
        description="Say whose face is where on one's photo, which may have 45. Asked for again with the same "
        "`faceId`, it answers the face there is and counts it once. A `takenAt` that is not the photo's is NOT_FOUND.",
    )
    untag_face = ask(
        patterns.UNTAG_FACE,
        resolver=resolve.untag_face,
        graphql_type=Face | None,
        extent=Extent(written=3),
        description="Take a face off one's photo: the face as it was, or null if it is gone already. An admin may take "
        "a face off anybody's photo, and away when its photo is gone.",
    )
