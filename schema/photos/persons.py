"""What the API says about people who are on photos: the shape only."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import strawberry

from datastore.keyspace.photos import faces as face_patterns
from datastore.keyspace.photos import persons as patterns
from datastore.model.access_patterns import Extent
from datastore.photos import persons as records
from resolvers.photos import person_photos as resolve_appearances
from resolvers.photos import persons as resolve
from resolvers.shared import node_ids as nodes
from schema.connections import Connection, Node
from schema.fields import VERSION, ask

if TYPE_CHECKING:
    from schema.photos.person_photos import PersonPhotoConnection

LazyPhotos = Annotated["PersonPhotoConnection", strawberry.lazy("schema.photos.person_photos")]


@strawberry.type(description="Somebody who is on photos.")
class Person(Node):
    id = strawberry.field(resolver=nodes.person_id, graphql_type=strawberry.ID, description="Globally unique.")
    person_id: strawberry.ID = strawberry.field(description="Unique among persons; sorts by the time it was made.")
    name: str = strawberry.field(description="What they are called.")
    face_count: int = strawberry.field(
        description="How many faces on photos are theirs; 0 for somebody whose faces are not counted yet, which they "
        "are with the next change of one."
    )
    thumbnail_url = strawberry.field(
        resolver=resolve.thumbnail_url,
        graphql_type=str | None,
        description="Where a picture of them is, as it was given; null for others than admins where an email is in it.",
    )
    created_at: datetime = strawberry.field(description="When they were named first.")
    version: int = strawberry.field(description=VERSION)
    photos = ask(
        face_patterns.PHOTOS_OF_PERSON,
        resolver=resolve_appearances.photos_of,
        graphql_type=LazyPhotos,
        extent=Extent(each=True),
        description="The photos they are on, each once, those they were tagged on last first.",
    )

    @classmethod
    def is_type_of(cls, value: Any, _info: object) -> bool:
        return isinstance(value, records.Person)


@strawberry.type
class PersonQueries:
    person = ask(
        patterns.PERSON, resolver=resolve.person, graphql_type=Person | None, description="A person by id, or null."
    )
    persons = ask(
        patterns.PERSONS,
        resolver=resolve.persons,
        graphql_type=Connection[Person],
        description="All persons, by id.",
    )


@strawberry.type
class PersonMutations:
    create_person = ask(
        patterns.CREATE_PERSON,
        resolver=resolve.create_person,
        graphql_type=Person,
        description="Name a person, to tag them on photos. Asked for again with the same `personId`, it answers the "
        "person there is and changes nothing.",
    )
    update_person = ask(
        patterns.UPDATE_PERSON,
        resolver=resolve.update_person,
        graphql_type=Person,
        extent=Extent(written=2),
        description="Change a person's name or picture.",
    )
    merge_persons = ask(
        patterns.MERGE_PERSONS,
        resolver=resolve.merge_persons,
        graphql_type=Person,
        extent=Extent(written=25),
        description="Make one person of two: all faces of `from` become those of `into`, who is answered, and `from` "
        "goes. A merge that was cut off goes on when it is asked for again, and one that is done changes nothing: a "
        "`from` who is not there counts as merged. While the index by which the faces are found may not show all of "
        "them, the answer is a CONFLICT that is `retryable`: ask again in a while. Meanwhile whoever tags "
        "`from` tags `into`.",
    )
