"""What the API says about the photos a person is on: the shape only."""

import strawberry

from datastore.keyspace.photos import faces as patterns
from datastore.model.access_patterns import Extent
from resolvers.photos import person_photos as resolve
from schema.connections import Edge, PageInfo
from schema.fields import ask
from schema.photos.faces import Face
from schema.photos.photos import Photo


@strawberry.type(description="A photo in the list of those that a person is on.")
class PersonPhotoEdge(Edge[Photo]):
    faces = ask(
        patterns.FACE,
        patterns.PHOTOS_OF_PERSON,
        resolver=resolve.faces_there,
        graphql_type=list[Face | None],
        extent=Extent(size=2, each=True),
        description="The person's faces on this photo, in the order of the list.",
    )


@strawberry.type(description="One page of the photos that a person is on.")
class PersonPhotoConnection:
    edges: list[PersonPhotoEdge] = strawberry.field(description="The places of this page, in order.")
    nodes: list[Photo | None] = strawberry.field(description="The same without cursors and faces.")
    page_info: PageInfo = strawberry.field(description="Where this page stands.")
    last_evaluated_key: str | None = strawberry.field(
        description="The cursor to go on from, as DynamoDB users know it; null at the end of the list."
    )


@strawberry.type
class AppearanceQueries:
    photos_of_person = ask(
        patterns.PHOTOS_OF_PERSON,
        resolver=resolve.photos_of_person,
        graphql_type=PersonPhotoConnection,
        extent=Extent(each=True),
        description="The photos a person is on, each once, those they were tagged on last first. Empty for a person "
        "that is not there.",
    )
