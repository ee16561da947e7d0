"""Persons on photos: `PERSON#<id>` / `PERSON#<name>`.

The sort key holds the name, so a rename moves the item. If the name is unknown or outdated, a person is queried by the
partition. While a person is being merged into a target person, `mergedInto` is the target's id, `mergedAt` the start of
the merge, and the target's `receives` holds the ids of all persons that are being merged into it.
"""

from datastore.items.keys import KeyParts, item_key
from datastore.keyspace.photos.faces import face_of_person
from datastore.keyspace.photos.table import SPARKS, of_type
from datastore.model.access_patterns import GET, PUT, QUERY, TRANSACT, UPDATE, AccessPattern, Who
from datastore.model.versioning import version_guard

TYPE = "PERSON"


@item_key(SPARKS)
def person(person_id: str, name: str) -> KeyParts:
    return (TYPE, person_id), (TYPE, name)


PERSON = person.query(
    "SPARKS-N1",
    "A person, by the full key if the name is known, else by the id",
    Who.ANY,
    ("person", "Photo.persons", "Face.person", "node", "nodes"),
    operations=GET + QUERY,
)
PERSONS = of_type.query("SPARKS-6", "All persons, ordered by id", Who.ANY, ("persons",))
FACES_OF_PERSON = face_of_person.query(
    "SPARKS-P2", "The faces of a person on a photo that does not list its faces", filter=("imageId = :image",)
)
FACES_TO_MERGE = face_of_person.query(
    "SPARKS-W1", "The faces of a person that is merged into another", Who.ADMIN, ("mergePersons",)
)
COUNT_FACES = face_of_person.query(
    "SPARKS-P2", "The number of a person's faces, if it is not stored yet", projection="COUNT"
)
CREATE_PERSON = AccessPattern(
    "SPARKS-W1",
    "Create a person; a repeat with the same id changes nothing",
    SPARKS,
    # A person with a client-generated id is queried before, because it may have been renamed since, and after: one of
    # two persons that were created concurrently is deleted.
    QUERY + PUT + TRANSACT,
    Who.ADMIN,
    ("createPerson",),
    transacts=("Delete", "ConditionCheck"),
    condition="attribute_not_exists(PK)",
    consistent=True,
)
UPDATE_PERSON = AccessPattern(
    "SPARKS-W1",
    "Change a person's name or picture",
    SPARKS,
    # A new name is a new key, so the item moves.
    QUERY + UPDATE + TRANSACT,
    Who.ADMIN,
    ("updatePerson",),
    transacts=("Put", "Delete"),
    condition="attribute_exists(PK)",
    guard=version_guard(),
    consistent=True,
)
MERGE_PERSONS = AccessPattern(
    "SPARKS-W1",
    "Merge a person into another, with all faces; a repeat continues an interrupted merge",
    SPARKS,
    # The faces and their photos are read in batches.
    GET + QUERY + TRANSACT,
    Who.ADMIN,
    ("mergePersons",),
    transacts=("Update", "Delete", "ConditionCheck"),
    condition="mergedInto = :into AND (attribute_not_exists(faceCount) OR faceCount = :seen)",
    consistent=True,
)
