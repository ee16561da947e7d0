"""GraphQL types and fields of persons on photos."""

from datetime import datetime

import strawberry

from datastore.keyspace.photos import faces as face_patterns
from datastore.keyspace.photos import persons as patterns
from datastore.model.access_patterns import Extent
from datastore.photos import persons as records
from resolvers.photos import persons as resolve
from schema.connections import Connection
from schema.fields import VERSION_BESIDE_COUNTS, described, pattern_field
from schema.nodes import Node, node_type
from schema.photos.lazy_types import LazyPersonPhotos


@node_type(
    records.Person,
    patterns.PERSON,
    parts=("person_id",),
    read=lambda context, *key: context.persons.by_id(*key),
    description="A person who is on photos.",
)
class Person(Node):
    person_id: strawberry.ID = described("The person's id, unique among persons. Ids sort by the time of creation.")
    name: str = described("The name, 1 to 100 characters.")
    face_count: int | None = described(
        "The number of faces on photos; null until they are counted, at the next change of one of these faces."
    )
    thumbnail_url = strawberry.field(
        resolver=resolve.thumbnail_url,
        graphql_type=str | None,
        description="The address of a picture of the person, as it was supplied; null without one. An address "
        "that contains an email address is visible to admins only.",
    )
    created_at: datetime = described("The time at which the person was created.")
    version: int = described(VERSION_BESIDE_COUNTS)
    photos = pattern_field(
        face_patterns.PHOTOS_BY_PERSON,
        resolver=resolve.photos_of_parent,
        graphql_type=LazyPersonPhotos,
        extent=Extent(per_entry=True),
        description="The photos of the person, each once, the last tagged first.",
    )


@strawberry.type
class PersonQueries:
    person = pattern_field(
        patterns.PERSON,
        resolver=resolve.person,
        graphql_type=Person | None,
        description="Return a person; null if there is none.",
    )
    persons = pattern_field(
        patterns.PERSONS,
        resolver=resolve.persons,
        graphql_type=Connection[Person],
        description="Return all persons, by `personId`: the first created first.",
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
        extent=Extent(written=25, ignores={"into_id": "The number of faces of `fromId` decides, whatever the target."}),
        description="Merge two persons, and return the remaining one: all faces of `fromId` become faces of `intoId`, "
        "and `fromId` is deleted. Repeat the request to resume a merge that was interrupted; a completed merge "
        "changes nothing, and neither does a `fromId` that does not exist. CONFLICT with `retryable` while the "
        "index of faces may be incomplete: repeat the request later. During a merge, tags of `fromId` become "
        "tags of `intoId`.",
    )
