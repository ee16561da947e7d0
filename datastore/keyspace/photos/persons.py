"""Persons on photos: `PERSON#<id>` / `PERSON#<name>`.

The sort key holds the name, so a rename moves the item. If the name is unknown or outdated, a person is queried by the
partition. While a person is being merged into a target person, `mergedInto` is the target's id, `mergedAt` the start of
the merge, and the target's `receives` holds the ids of all persons that are being merged into it.
"""

from dataclasses import replace

from datastore.keyspace.photos.table import BY_PERSON, BY_TYPE, SPARKS
from datastore.model.access_patterns import AccessPattern, Who
from datastore.model.composite_keys import Key, join, split
from datastore.model.versioning import version_guard

TYPE = "PERSON"
PREFIX = "PERSON#"


def partition(person_id: str) -> str:
    return join(TYPE, person_id)


def person(person_id: str, name: str) -> Key:
    return Key(partition(person_id), join(TYPE, name))


def person_parts(key: Key) -> tuple[str, str]:
    """Return the id and the name in a person's key. Other programs may write a name with an unescaped `#`."""
    return split(key.partition)[1], "#".join(split(key.sort)[1:])


PERSON = AccessPattern(
    id="SPARKS-N1",
    question="A person, by the full key if the name is known, else by the id",
    table=SPARKS,
    operations=("GetItem", "BatchGetItem", "Query"),
    who=Who.ANY,
    fields=("person", "Photo.persons", "Face.person", "node", "nodes"),
    key="PK = :partition AND begins_with(SK, :prefix)",
)
PERSON_CONSISTENT = replace(PERSON, consistent=True, fields=())
PERSONS = AccessPattern(
    id="SPARKS-6",
    question="All persons, ordered by id",
    table=SPARKS,
    operations=("Query",),
    who=Who.ANY,
    fields=("persons",),
    index=BY_TYPE,
    key="entityType = :partition",
)
FACES_OF_PERSON = AccessPattern(
    id="SPARKS-P2",
    question="The faces of a person on a photo that does not list its faces",
    table=SPARKS,
    operations=("Query",),
    who=Who.INTERNAL,
    index=BY_PERSON,
    key="personId = :partition AND begins_with(PK, :prefix)",
    filter=("imageId = :image",),
)
FACES_TO_MERGE = AccessPattern(
    id="SPARKS-W1",
    question="The faces of a person that is merged into another",
    table=SPARKS,
    operations=("Query",),
    who=Who.ADMIN,
    fields=("mergePersons",),
    index=BY_PERSON,
    key="personId = :partition AND begins_with(PK, :prefix)",
)
COUNT_FACES = AccessPattern(
    id="SPARKS-P2",
    question="The number of a person's faces, if it is not stored yet",
    table=SPARKS,
    operations=("Query",),
    who=Who.INTERNAL,
    index=BY_PERSON,
    key="personId = :partition AND begins_with(PK, :prefix)",
    projection="COUNT",
)
CREATE_PERSON = AccessPattern(
    id="SPARKS-W1",
    question="Create a person; a repeat with the same id changes nothing",
    table=SPARKS,
    # A person with a client-generated id is queried before, because it may have been renamed since, and after: one of
    # two persons that were created concurrently is deleted.
    operations=("Query", "PutItem", "TransactWriteItems"),
    transacts=("Delete", "ConditionCheck"),
    who=Who.ADMIN,
    fields=("createPerson",),
    condition="attribute_not_exists(PK)",
    consistent=True,
)
UPDATE_PERSON = AccessPattern(
    id="SPARKS-W1",
    question="Change a person's name or picture",
    table=SPARKS,
    # A new name is a new key, so the item moves.
    operations=("Query", "UpdateItem", "TransactWriteItems"),
    transacts=("Put", "Delete"),
    who=Who.ADMIN,
    fields=("updatePerson",),
    condition="attribute_exists(PK)",
    guard=version_guard(),
    consistent=True,
)
MERGE_PERSONS = AccessPattern(
    id="SPARKS-W1",
    question="Merge a person into another, with all faces; a repeat continues an interrupted merge",
    table=SPARKS,
    # The faces and their photos are read in batches.
    operations=("GetItem", "BatchGetItem", "Query", "TransactWriteItems"),
    transacts=("Update", "Delete", "ConditionCheck"),
    who=Who.ADMIN,
    fields=("mergePersons",),
    condition="mergedInto = :into AND (attribute_not_exists(faceCount) OR faceCount = :seen)",
    consistent=True,
)

PATTERNS = (
    PERSON,
    PERSON_CONSISTENT,
    PERSONS,
    FACES_OF_PERSON,
    COUNT_FACES,
    FACES_TO_MERGE,
    CREATE_PERSON,
    UPDATE_PERSON,
    MERGE_PERSONS,
)
