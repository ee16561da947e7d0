"""People who are on photos: SPARKS-6, SPARKS-N1 and their part of SPARKS-W1."""

import asyncio
from typing import Annotated

import strawberry

from datastore.errors import DomainError
from datastore.keyspace.photos import persons as keys
from datastore.pages import SortOrder
from datastore.photos.faces import Face
from datastore.photos.library import Photo
from datastore.photos.persons import Person, person_from
from resolvers import bounds
from resolvers.arguments import After, Before, First, Last, Order
from resolvers.connections import Connection, Paging, connection, listing
from resolvers.context import Info
from resolvers.photos.callers import Consistent, NotConsistent, from_index

PersonId = Annotated[strawberry.ID, strawberry.argument(description="The person's `personId`, not the global `id`.")]


async def person(info: Info, id: PersonId, consistent: Consistent = False) -> Person | None:
    pattern = keys.PERSON_NOW if consistent else keys.PERSON
    return await info.context.persons.by_id(bounds.id("id", id), None, pattern)


async def persons(
    info: Info,
    first: First = None,
    after: After = None,
    last: Last = None,
    before: Before = None,
    order: Order = SortOrder.ASCENDING,
    consistent: NotConsistent = False,
) -> Connection[Person]:
    from_index(consistent)
    of = listing(info.context.services.cursors, keys.PERSONS, "Query.persons", {"order": order.value})
    page = await info.context.persons.all(of.span(Paging(first, after, last, before)), order)
    return connection(of, page, person_from)


async def persons_on_photo(parent: strawberry.Parent[Photo], info: Info) -> list[Person | DomainError]:
    """In the order in which they were tagged; one who cannot be read is an error in their own place."""
    found = await asyncio.gather(
        *[info.context.persons.by_id(id, parent.person_names.get(id)) for id in parent.person_ids],
        return_exceptions=True,
    )
    # One who is no more is none that can be shown.
    return [person for person in found if person is not None]  # type: ignore[misc]


async def person_of_face(parent: strawberry.Parent[Face], info: Info) -> Person | None:
    name = parent.photo.person_names.get(parent.person_id) if parent.photo else None
    return await info.context.persons.by_id(parent.person_id, name)
