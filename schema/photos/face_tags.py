"""GraphQL mutations that tag and untag faces."""

import strawberry

from datastore.keyspace.photos import faces as patterns
from datastore.model.access_patterns import Extent
from resolvers.photos import face_tags as resolve
from schema.fields import pattern_field
from schema.photos.faces import Face


@strawberry.type
class TaggingMutations:
    tag_face = pattern_field(
        patterns.TAG_FACE,
        resolver=resolve.tag_face,
        graphql_type=Face,
        extent=Extent(written=3),
        description="Tag a person's face on a photo of the caller, and return the face. A photo may have at most "
        "45 faces. A repeated request with the same `faceId` returns the existing face and counts it once. "
        "NOT_FOUND if `takenAt` differs from the photo's.",
    )
    untag_face = pattern_field(
        patterns.UNTAG_FACE,
        resolver=resolve.untag_face,
        graphql_type=Face | None,
        extent=Extent(written=3),
        description="Remove a face from a photo of the caller. Return the face as it was, or null if it does not "
        "exist. Admins may remove a face from any photo, and a face whose photo was deleted.",
    )
