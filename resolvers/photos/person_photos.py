"""The photos of a person: SPARKS-7."""

from collections.abc import Mapping
from typing import Any

import strawberry

from datastore.errors import DomainError
from datastore.keyspace.photos import faces as keys
from datastore.photos.faces import Face
from datastore.photos.person_photos import PersonPhoto
from datastore.photos.persons import Person
from datastore.photos.photos import Photo, photo_from
from datastore.session.pagination import SortOrder
from resolvers.photos.persons import PersonId
from resolvers.photos.photo_access import NotConsistent, check_index_read
from resolvers.shared import validation as validate
from resolvers.shared.arguments import After, Before, First, Last, Order
from resolvers.shared.context import Info
from resolvers.shared.paging import Connection, Edge, PagingArguments


class PersonPhotoEdge(Edge[Photo]):
    """An entry of the list of a person's photos, with the person's faces on the photo."""

    person_photo: PersonPhoto


async def photos_of_person(
    info: Info,
    person_id: PersonId,
    first: First = None,
    after: After = None,
    last: Last = None,
    before: Before = None,
    order: Order = SortOrder.DESCENDING,
    consistent: NotConsistent = False,
) -> Connection[Photo]:
    check_index_read(consistent)
    id = validate.id("personId", person_id)
    return await _photos(info, id, "Query.photosOfPerson", (first, after, last, before), order)


async def photos_of_parent(
    parent: strawberry.Parent[Person],
    info: Info,
    first: First = None,
    after: After = None,
    last: Last = None,
    before: Before = None,
    order: Order = SortOrder.DESCENDING,
) -> Connection[Photo]:
    return await _photos(info, parent.person_id, "Person.photos", (first, after, last, before), order)


async def _photos(
    info: Info, person_id: str, field: str, paging: PagingArguments, order: SortOrder
) -> Connection[Photo]:
    arguments = {"personId": person_id, "order": order.value}
    connection = Connection(info.context.services.cursors, keys.PHOTOS_OF_PERSON, field, arguments, photo_from)
    connection.page, person_photos = await info.context.person_photos.of_person(
        person_id, connection.span(*paging), order
    )
    connection.items, connection.records = [each.item for each in person_photos], person_photos
    connection.edge = _edge
    return connection


def _edge(connection: Connection[Any], item: Mapping[str, Any], person_photo: PersonPhoto) -> PersonPhotoEdge:
    return PersonPhotoEdge(connection, item, person_photo.photo, person_photo)


async def faces_on_edge(parent: strawberry.Parent[PersonPhotoEdge]) -> list[Face | DomainError]:
    return await parent.person_photo.faces()
