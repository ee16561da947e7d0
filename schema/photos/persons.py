"""GraphQL types and fields of persons on photos."""

from datetime import datetime

import strawberry

from datastore.keyspace.photos import faces as face_patterns
from datastore.keyspace.photos import persons as patterns
from datastore.model.access_patterns import Extent
from datastore.photos import persons as records
from resolvers.photos import nodes
from resolvers.photos import person_photos as resolve_appearances
from resolvers.photos import persons as resolve
from schema.connections import Connection, Node, is_record, node_id
from schema.fields import VERSION, pattern_field
from schema.photos.lazy_types import LazyPersonPhotos


@strawberry.type(description="A person who is on photos.")
class Person(Node):
    id = node_id(nodes.person_id)
    person_id: strawberry.ID = strawberry.field(
        description="The person's id, unique among persons. Ids sort by the time of creation."
    )
    name: str = strawberry.field(description="The name, 1 to 100 characters.")
    face_count: int = strawberry.field(
        description="The number of faces on photos. It is 0 until the person's faces are counted, at the next change "
        "of one of these faces."
    )
    thumbnail_url = strawberry.field(
        resolver=resolve.thumbnail_url,
        graphql_type=str | None,
        description="The address of a picture of the person, as it was supplied; null without one. An address "
        "that contains an email address is visible to admins only.",
    )
    created_at: datetime = strawberry.field(description="The time at which the person was created.")
    version: int = strawberry.field(description=VERSION)
    photos = pattern_field(
        face_patterns.PHOTOS_OF_PERSON,
        resolver=resolve_appearances.photos_of_parent,
        graphql_type=LazyPersonPhotos,
        extent=Extent(per_entry=True),
        description="The photos of the person, each once, by default the last tagged first.",
    )

    is_type_of = is_record(records.Person)


@strawberry.type
class PersonQueries:
    person = pattern_field(
        patterns.PERSON,
        resolver=resolve.person,
        graphql_type=Person | None,
        description="Return a person by id; null if there is none.",
    )
    persons = pattern_field(
        patterns.PERSONS,
        resolver=resolve.persons,
        graphql_type=Connection[Person],
        description="Return all persons, by id.",
    )


@strawberry.type
class PersonMutations:
    create_person = pattern_field(
        patterns.CREATE_PERSON,
        resolver=resolve.create_person,
        graphql_type=Person,
        description="Create a person, to be tagged on photos, and return it. A repeated request with the same "
        "`personId` returns the existing person and changes nothing.",
    )
    update_person = pattern_field(
        patterns.UPDATE_PERSON,
        resolver=resolve.update_person,
        graphql_type=Person,
        extent=Extent(written=2),
        description="Change a person's name or picture, and return the person.",
    )
    merge_persons = pattern_field(
        patterns.MERGE_PERSONS,
        resolver=resolve.merge_persons,
        graphql_type=Person,
        extent=Extent(written=25),
        description="Merge two persons, and return the remaining one: all faces of `from` become faces of `into`, "
        "and `from` is deleted. Repeat the request to resume a merge that was interrupted; a completed merge "
        "changes nothing, and neither does a `from` that does not exist. CONFLICT with `retryable` while the "
        "index of faces may be incomplete: repeat the request later. During a merge, tags of `from` become tags "
        "of `into`.",
    )
