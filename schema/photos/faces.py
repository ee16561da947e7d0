"""GraphQL types and fields of faces, and of the photos of a person."""

from datetime import datetime

import strawberry

from datastore.keyspace.photos import faces as patterns
from datastore.keyspace.photos import persons as person_patterns
from datastore.keyspace.photos import photos as photo_patterns
from datastore.model.access_patterns import Extent
from datastore.photos import faces as records
from resolvers.photos import faces as resolve
from resolvers.photos import persons as resolve_persons
from resolvers.photos import photos as resolve_photos
from schema.connections import Edge, PageInfo
from schema.fields import described, pattern_field
from schema.nodes import Node, node_type, value_type
from schema.photos.persons import Person
from schema.photos.photos import Photo


@value_type(description="The position and size of a face, in fractions of the image's width and height, 0 to 1.")
class FaceBoundingBox:
    left: float = described("The distance from the left edge.")
    top: float = described("The distance from the upper edge.")
    width: float = described("The width.")
    height: float = described("The height.")


@node_type(
    records.Face,
    patterns.FACE,
    parts=("face_id", "image_id"),
    read=lambda context, *key: context.faces.by_key(*key),
    description="A person's face on a photo.",
)
class Face(Node):
    face_id: strawberry.ID = described(
        "The face's id, unique among faces. Ids made by the gateway sort by the time of tagging."
    )
    image_id: strawberry.ID = described("The `imageId` of the photo.")
    person_id: strawberry.ID = described("The `personId` of the person.")
    confidence: float = described("The probability that the face is this person's, 0 to 1.")
    bounding_box: FaceBoundingBox = described("The position of the face on the photo.")
    created_at: datetime = described("The time at which the face was tagged.")
    photo = pattern_field(
        photo_patterns.PHOTO,
        resolver=resolve_photos.photo_of_face,
        graphql_type=Photo | None,
        description="The photo; null if it was deleted.",
    )
    person = pattern_field(
        person_patterns.PERSON,
        resolver=resolve_persons.person_of_face,
        graphql_type=Person | None,
        description="The person as stored now; null if the person was deleted.",
    )


@strawberry.type
class TaggingMutations:
    tag_face = pattern_field(
        patterns.TAG_FACE,
        resolver=resolve.tag_face,
        graphql_type=Face,
        extent=Extent(written=3),
        description="Tag a person's face on a photo of the caller, and return the face. A photo may have at most 45 "
        "faces; CONFLICT beyond. A repeated request with the same `faceId` returns the existing face and counts it "
        "once. NOT_FOUND if `takenAt` differs from the photo's.",
    )
    untag_face = pattern_field(
        patterns.UNTAG_FACE,
        resolver=resolve.untag_face,
        graphql_type=Face | None,
        extent=Extent(written=3),
        description="Remove a face from a photo of the caller. Return the face as it was, or null if it does not "
        "exist. Admins may remove a face from any photo, and a face whose photo was deleted.",
    )


@strawberry.type(description="An entry of the list of a person's photos.")
class PersonPhotoEdge(Edge[Photo]):
    faces = pattern_field(
        patterns.FACE,
        patterns.PHOTOS_BY_PERSON,
        resolver=resolve_persons.faces_on_edge,
        graphql_type=list[Face | None],
        extent=Extent(size=2, per_entry=True),
        description="The person's faces on this photo, in the order of the list: this API tags at most 45, other "
        "programs may tag more. An entry that cannot be read is null, with an error.",
    )


@strawberry.type(description="A page of a person's photos.")
class PersonPhotoConnection:
    edges: list[PersonPhotoEdge] = described("The entries of this page with their cursors, in the order of the list.")
    nodes: list[Photo | None] = described("The photos of this page without cursors and faces.")
    page_info: PageInfo = described("The position of this page in the list.")
    last_evaluated_key: str | None = described(
        "The cursor of the next page, for `after`: the same as `pageInfo.endCursor`, but null at the end of the list."
    )


@strawberry.type
class AppearanceQueries:
    photos_by_person = pattern_field(
        patterns.PHOTOS_BY_PERSON,
        resolver=resolve_persons.photos_by_person,
        graphql_type=PersonPhotoConnection,
        extent=Extent(per_entry=True),
        description="Return the photos of a person, each once, the last tagged first. The list is "
        "empty for an unknown person.",
    )
