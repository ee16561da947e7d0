"""GraphQL types and fields of faces."""

from datetime import datetime

import strawberry

from datastore.keyspace.photos import persons as person_patterns
from datastore.keyspace.photos import photos as photo_patterns
from datastore.photos import faces as records
from resolvers.photos import nodes
from resolvers.photos import persons as resolve_persons
from resolvers.photos import photos as resolve_photos
from schema.connections import Node, is_record, node_id
from schema.fields import pattern_field
from schema.photos.persons import Person
from schema.photos.photos import Photo


@strawberry.type(description="The position and size of a face, in fractions of the image's width and height, 0 to 1.")
class FaceBoundingBox:
    left: float = strawberry.field(description="The distance from the left edge.")
    top: float = strawberry.field(description="The distance from the upper edge.")
    width: float = strawberry.field(description="The width.")
    height: float = strawberry.field(description="The height.")


@strawberry.type(description="A person's face on a photo.")
class Face(Node):
    id = node_id(nodes.face_id)
    face_id: strawberry.ID = strawberry.field(
        description="The face's id, unique among faces. Ids made by the gateway sort by the time of tagging."
    )
    image_id: strawberry.ID = strawberry.field(description="The `imageId` of the photo.")
    person_id: strawberry.ID = strawberry.field(description="The `personId` of the person.")
    confidence: float = strawberry.field(description="The probability that the face is this person's, 0 to 1.")
    bounding_box: FaceBoundingBox = strawberry.field(description="The position of the face on the photo.")
    created_at: datetime = strawberry.field(description="The time at which the face was tagged.")
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

    is_type_of = is_record(records.Face)
