"""Persons on photos and their photos: SPARKS-6, SPARKS-7, SPARKS-N1 and the mutations of persons (SPARKS-W1)."""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any, Unpack

import strawberry

from datastore.errors import BadUserInput, DomainError
from datastore.keyspace.photos import faces as face_keys
from datastore.keyspace.photos import persons as keys
from datastore.model.access_patterns import consistently
from datastore.photos.faces import Face
from datastore.photos.person_photos import PersonPhoto
from datastore.photos.persons import Person
from datastore.photos.photos import Photo
from datastore.session.pagination import SortOrder
from resolvers.photos.photo_access import holds_email, is_admin, list_of_type
from resolvers.shared import validation as validate
from resolvers.shared.arguments import EXPECTED_VERSION, Consistent, argument, optional, required
from resolvers.shared.authorization import require
from resolvers.shared.client_ids import CLIENT_ID, new_object_id
from resolvers.shared.context import Info
from resolvers.shared.paging import Connection, Edge, Paging, connection_of, paged_in

PERSON = ("Person",)

PersonId = Annotated[strawberry.ID, argument("The person's `personId` or `id`.")]


@strawberry.input(description="A person to create.")
class CreatePersonInput:
    name: str = required("The name, 1 to 100 characters.")
    thumbnail_url: str | None = optional(
        "The http(s) address of a picture of the person, at most 1,000 characters; by default none."
    )
    person_id: strawberry.ID | None = optional(CLIENT_ID)


@strawberry.input(description="The fields of a person to change. Omitted fields keep their values.")
class UpdatePersonInput:
    name: strawberry.Maybe[str | None] = optional("The name, 1 to 100 characters.")
    thumbnail_url: strawberry.Maybe[str | None] = optional(
        "The http(s) address of a picture of the person, at most 1,000 characters. Null removes it."
    )
    expected_version: int | None = optional(EXPECTED_VERSION)


NewPerson = Annotated[CreatePersonInput, argument("The person.")]
Changes = Annotated[UpdatePersonInput, argument("The changes, at least one field.")]
MergedId = Annotated[
    strawberry.ID, argument("The `personId` or `id` of the person that is merged into the other one and deleted.")
]
RemainingId = Annotated[
    strawberry.ID, argument("The `personId` or `id` of the person that remains, with the faces of both.")
]


async def person(info: Info, id: PersonId, consistent: Consistent = False) -> Person | None:
    return await info.context.persons.by_id(
        validate.id("id", id, of=PERSON), None, consistently(keys.PERSON, consistent)
    )


persons = list_of_type(keys.PERSONS, Person.decoder, keys.TYPE, SortOrder.ASCENDING)


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
    pattern = consistently(keys.PERSON, parent.just_changed)
    return await info.context.persons.by_id(parent.person_id, name, pattern)


async def create_person(info: Info, input: NewPerson) -> Person:
    context = info.context
    require(context.identity, keys.CREATE_PERSON)
    values = validate.fields(input, Person)
    return await context.person_rename.create(
        new_object_id(info, "personId", input.person_id),
        name=values["name"],
        thumbnail_url=values["thumbnail_url"],
        may_exist=input.person_id is not None or context.is_retry,
    )


async def update_person(info: Info, id: PersonId, input: Changes) -> Person:
    require(info.context.identity, keys.UPDATE_PERSON)
    person_id, changes = validate.id("id", id, of=PERSON), validate.changes(input, Person)
    return await info.context.person_rename.update(person_id, changes, validate.version(input.expected_version))


async def merge_persons(info: Info, from_id: MergedId, into_id: RemainingId) -> Person:
    require(info.context.identity, keys.MERGE_PERSONS)
    source, target = validate.id("fromId", from_id, of=PERSON), validate.id("intoId", into_id, of=PERSON)
    if source == target:
        raise BadUserInput("`intoId` must differ from `fromId`.", field="intoId")
    return await info.context.person_merge.merge(source, target)


class PersonPhotoEdge(Edge[Photo]):
    """An entry of the list of a person's photos, with the person's faces on the photo."""

    person_photo: PersonPhoto


@paged_in(SortOrder.DESCENDING)
async def photos_by_person(
    info: Info,
    person_id: PersonId,
    **paging: Unpack[Paging],
) -> Connection[Photo]:
    id = validate.id("personId", person_id, of=PERSON)
    return await _photos(info, id, paging)


@paged_in(SortOrder.DESCENDING)
async def photos_of_parent(
    parent: strawberry.Parent[Person], info: Info, **paging: Unpack[Paging]
) -> Connection[Photo]:
    return await _photos(info, parent.person_id, paging)


async def _photos(info: Info, person_id: str, paging: Paging) -> Connection[Photo]:
    connection = connection_of(info, face_keys.PHOTOS_BY_PERSON, Photo.decoder, {"personId": person_id})
    span = connection.span(**paging)
    connection.page, person_photos = await info.context.person_photos.of_person(person_id, span)
    connection.items, connection.records = [each.item for each in person_photos], person_photos
    connection.edge = _edge
    return connection


def _edge(connection: Connection[Any], item: Mapping[str, Any], person_photo: PersonPhoto) -> PersonPhotoEdge:
    return PersonPhotoEdge(connection, item, person_photo.photo, person_photo)


async def faces_on_edge(parent: strawberry.Parent[PersonPhotoEdge]) -> list[Face | DomainError]:
    return await parent.person_photo.faces()
