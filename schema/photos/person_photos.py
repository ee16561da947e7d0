"""GraphQL types and fields of the photos of a person."""

import strawberry

from datastore.keyspace.photos import faces as patterns
from datastore.model.access_patterns import Extent
from resolvers.photos import person_photos as resolve
from schema.connections import Edge, PageInfo
from schema.fields import pattern_field
from schema.photos.faces import Face
from schema.photos.photos import Photo


@strawberry.type(description="An entry of the list of a person's photos.")
class PersonPhotoEdge(Edge[Photo]):
    faces = pattern_field(
        patterns.FACE,
        patterns.PHOTOS_OF_PERSON,
        resolver=resolve.faces_on_edge,
        graphql_type=list[Face | None],
        extent=Extent(size=2, per_entry=True),
        description="The person's faces on this photo, in the order of the list.",
    )


@strawberry.type(description="A page of a person's photos.")
class PersonPhotoConnection:
    edges: list[PersonPhotoEdge] = strawberry.field(
        description="The entries of this page with their cursors, in the order of the list."
    )
    nodes: list[Photo | None] = strawberry.field(description="The photos of this page without cursors and faces.")
    page_info: PageInfo = strawberry.field(description="The position of this page in the list.")
    last_evaluated_key: str | None = strawberry.field(
        description="The cursor of the next page, for `after`, under DynamoDB's name for it; null at the end of "
        "the list."
    )


@strawberry.type
class AppearanceQueries:
    photos_of_person = pattern_field(
        patterns.PHOTOS_OF_PERSON,
        resolver=resolve.photos_of_person,
        graphql_type=PersonPhotoConnection,
        extent=Extent(per_entry=True),
        description="Return the photos of a person, each once, by default the last tagged first. The list is "
        "empty for an unknown person.",
    )
