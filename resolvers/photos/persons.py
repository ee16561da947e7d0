"""Persons on photos: SPARKS-6, SPARKS-N1 and the mutations of persons (SPARKS-W1)."""

import asyncio
from typing import Annotated

import strawberry

from datastore.errors import BadUserInput, DomainError
from datastore.keyspace.photos import persons as keys
from datastore.model.ids import uuid7
from datastore.photos.faces import Face
from datastore.photos.persons import Person, person_from
from datastore.photos.photos import Photo
from datastore.session.pagination import SortOrder
from resolvers.photos.photo_access import Consistent, NotConsistent, check_index_read, holds_email, is_admin
from resolvers.shared import validation as validate
from resolvers.shared.arguments import EXPECTED_VERSION, After, Before, First, Last, Order
from resolvers.shared.authorization import require
from resolvers.shared.client_ids import uuid7_id
from resolvers.shared.context import Info
from resolvers.shared.paging import Connection

PersonId = Annotated[strawberry.ID, strawberry.argument(description="The person's `personId`, not the global `id`.")]
LONGEST_NAME = 100


def person_name(field: str, value: str) -> str:
    return validate.line(field, value, LONGEST_NAME)


CREATE_CHECKS: dict[str, validate.Check] = {"name": person_name, "thumbnail_url": validate.url, "person_id": uuid7_id}
CHECKS: dict[str, validate.Check] = {"name": person_name, "thumbnail_url": validate.url}


@strawberry.input(description="A person to create.")
class CreatePersonInput:
    name: str = strawberry.field(description="The name, 1 to 100 characters.")
    thumbnail_url: str | None = strawberry.field(
        description="The http(s) address of a picture of the person, at most 1,000 characters.", default=None
    )
    person_id: strawberry.ID | None = strawberry.field(
        default=None,
        description="An id chosen by the client, which makes repeated requests safe: a UUID of version 7 in lower "
        "case. By default the gateway creates one.",
    )


@strawberry.input(description="The fields of a person to change. Omitted fields keep their values.")
class UpdatePersonInput:
    person_id: strawberry.ID = strawberry.field(description="The person's `personId`.")
    name: strawberry.Maybe[str | None] = strawberry.field(description="The name, 1 to 100 characters.", default=None)
    thumbnail_url: strawberry.Maybe[str | None] = strawberry.field(
        description="The http(s) address of a picture of the person, at most 1,000 characters. Null removes it.",
        default=None,
    )
    expected_version: int | None = strawberry.field(description=EXPECTED_VERSION, default=None)


NewPerson = Annotated[CreatePersonInput, strawberry.argument(description="The person.")]
Changes = Annotated[UpdatePersonInput, strawberry.argument(description="The changes, at least one field.")]
From = Annotated[
    strawberry.ID,
    strawberry.argument(
        name="from", description="The `personId` of the person that is merged into the other one and deleted."
    ),
]
Into = Annotated[
    strawberry.ID, strawberry.argument(description="The `personId` of the person that remains, with the faces of both.")
]


async def person(info: Info, id: PersonId, consistent: Consistent = False) -> Person | None:
    pattern = keys.PERSON_CONSISTENT if consistent else keys.PERSON
    return await info.context.persons.by_id(validate.id("id", id), None, pattern)


async def persons(
    info: Info,
    first: First = None,
    after: After = None,
    last: Last = None,
    before: Before = None,
    order: Order = SortOrder.ASCENDING,
    consistent: NotConsistent = False,
) -> Connection[Person]:
    check_index_read(consistent)
    connection = Connection(
        info.context.services.cursors, keys.PERSONS, "Query.persons", {"order": order.value}, person_from
    )
    page = await info.context.persons.all(connection.span(first, after, last, before), order)
    return connection.of(page)


def thumbnail_url(parent: strawberry.Parent[Person], info: Info) -> str | None:
    """Return the address, or None if it may contain an email address that the caller may not see."""
    url = parent.thumbnail_url
    return None if url and holds_email(url) and not is_admin(info.context.identity) else url


async def persons_on_photo(parent: strawberry.Parent[Photo], info: Info) -> list[Person | DomainError]:
    """Return the persons in the order of tagging. An error affects only the entry of that person."""
    results = await asyncio.gather(
        *[info.context.persons.by_id(id, parent.person_names.get(id)) for id in parent.person_ids],
        return_exceptions=True,
    )
    # Deleted persons are not shown.
    return [person for person in results if person is not None]  # type: ignore[misc]


async def person_of_face(parent: strawberry.Parent[Face], info: Info) -> Person | None:
    name = parent.photo.person_names.get(parent.person_id) if parent.photo else None
    pattern = keys.PERSON_CONSISTENT if parent.just_changed else keys.PERSON
    return await info.context.persons.by_id(parent.person_id, name, pattern)


async def create_person(info: Info, input: NewPerson) -> Person:
    context = info.context
    require(context.identity, keys.CREATE_PERSON)
    values = validate.fields(input, CREATE_CHECKS)
    return await context.person_rename.create(
        values["person_id"] or uuid7(context.requested_at, context.new_id(info)),
        name=values["name"],
        thumbnail_url=values["thumbnail_url"],
        may_exist=values["person_id"] is not None or context.is_retry,
    )


async def update_person(info: Info, input: Changes) -> Person:
    require(info.context.identity, keys.UPDATE_PERSON)
    person_id, changes = validate.id("personId", input.person_id), validate.changes(input, CHECKS, {"thumbnail_url"})
    attributes = validate.attributes(changes)
    return await info.context.person_rename.update(person_id, attributes, validate.version(input.expected_version))


async def merge_persons(info: Info, from_: From, into: Into) -> Person:
    require(info.context.identity, keys.MERGE_PERSONS)
    source, target = validate.id("from", from_), validate.id("into", into)
    if source == target:
        raise BadUserInput("`into` must differ from `from`.", field="into")
    return await info.context.person_merge.merge(source, target)
