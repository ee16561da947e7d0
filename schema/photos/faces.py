"""What the API says about faces: the shape only."""

from datetime import datetime
from typing import Any

import strawberry

from datastore.keyspace.photos import persons as person_patterns
from datastore.keyspace.photos import photos as library_patterns
from datastore.photos import faces as records
from resolvers.photos import persons as resolve_persons
from resolvers.photos import photos as resolve_library
from resolvers.shared import node_ids as nodes
from schema.connections import Node
from schema.fields import ask
from schema.photos.persons import Person
from schema.photos.photos import Photo


@strawberry.type(description="Where a face is, as fractions of the image's width and height, 0 to 1.")
class FaceBoundingBox:
    left: float = strawberry.field(description="From the left edge.")
    top: float = strawberry.field(description="From the upper edge.")
    width: float = strawberry.field(description="How wide.")
    height: float = strawberry.field(description="How high.")


@strawberry.type(description="One person's face in one photo.")
class Face(Node):
    id = strawberry.field(resolver=nodes.face_id, graphql_type=strawberry.ID, description="Globally unique.")
    face_id: strawberry.ID = strawberry.field(description="Unique among faces; sorts by the time it was tagged.")
    image_id: strawberry.ID = strawberry.field(description="The photo it is on.")
    person_id: strawberry.ID = strawberry.field(description="Whose it is.")
    confidence: float = strawberry.field(description="How sure that is, 0 to 1.")
    bounding_box: FaceBoundingBox = strawberry.field(description="Where it is on the photo.")
    created_at: datetime = strawberry.field(description="When it was tagged.")
    photo = ask(
        library_patterns.PHOTO,
        resolver=resolve_library.photo_of_face,
        graphql_type=Photo | None,
        description="The photo it is on.",
    )
    person = ask(
        person_patterns.PERSON,
        resolver=resolve_persons.person_of_face,
        graphql_type=Person | None,
        description="Whose it is, as they are now.",
    )

    @classmethod
    def is_type_of(cls, value: Any, _info: object) -> bool:
        return isinstance(value, records.Face)
