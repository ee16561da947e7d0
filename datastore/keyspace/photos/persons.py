"""People who are on photos: `PERSON#<id>` / `PERSON#<name>`.

The sort key holds the name, so a rename moves the item: where the name is not known, or known as it was, a person is
found by the partition. While one person is being merged into another, `mergedInto` is the other's id and `mergedAt`
when that began, and `receives` of the other holds those of all who are.
"""

from dataclasses import replace

from datastore.keyspace.photos.table import BY_PERSON, BY_TYPE, SPARKS
from datastore.model.access_patterns import AccessPattern, Who
from datastore.model.composite_keys import Key, join, split
from datastore.model.versioning import guard

TYPE = "PERSON"
PREFIX = "PERSON#"


def partition(person_id: str) -> str:
    return join(TYPE, person_id)


def person(person_id: str, name: str) -> Key:
    return Key(partition(person_id), join(TYPE, name))


def person_parts(key: Key) -> tuple[str, str]:
    """The id and the name of a person's key. Others may write a name as it is, with a `#` in it."""
    return split(key.partition)[1], "#".join(split(key.sort)[1:])


PERSON = AccessPattern(
    id="SPARKS-N1",
    question="A person: read by the key where the name is known, else found by the id",
    table=SPARKS,
    operations=("GetItem", "BatchGetItem", "Query"),
    who=Who.ANY,
    fields=("person", "Photo.persons", "Face.person", "node", "nodes"),
    key="PK = :partition AND begins_with(SK, :prefix)",
)
PERSON_NOW = replace(PERSON, consistent=True, fields=())
PERSONS = AccessPattern(
    id="SPARKS-6",
    question="All persons, by id",
    table=SPARKS,
    operations=("Query",),
    who=Who.ANY,
    fields=("persons",),
    index=BY_TYPE,
    key="entityType = :partition",
)
FACES_OF_PERSON = AccessPattern(
    id="SPARKS-P2",
    question="The faces of a person on one photo, where that does not know its faces",
    table=SPARKS,
    operations=("Query",),
    who=Who.INTERNAL,
    index=BY_PERSON,
    key="personId = :partition AND begins_with(PK, :prefix)",
    filter=("imageId = :image",),
)
FACES_TO_MERGE = AccessPattern(
    id="SPARKS-W1",
    question="The faces of a person who becomes another",
    table=SPARKS,
    operations=("Query",),
    who=Who.ADMIN,
    fields=("mergePersons",),
    index=BY_PERSON,
    key="personId = :partition AND begins_with(PK, :prefix)",
)
COUNT_FACES = AccessPattern(
    id="SPARKS-P2",
    question="How many faces a person has, where that is not kept yet",
    table=SPARKS,
    operations=("Query",),
    who=Who.INTERNAL,
    index=BY_PERSON,
    key="personId = :partition AND begins_with(PK, :prefix)",
    projection="COUNT",
)
CREATE_PERSON = AccessPattern(
    id="SPARKS-W1",
    question="Name a person, to tag them on photos; asked for again with the same id, it changes nothing",
    table=SPARKS,
    # One with an id of the client's own is looked for before: they may have another name by now. And after: of two who
    # were named at once one goes.
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
    # A new name is a new key: the item moves.
    operations=("Query", "UpdateItem", "TransactWriteItems"),
    transacts=("Put", "Delete"),
    who=Who.ADMIN,
    fields=("updatePerson",),
    condition="attribute_exists(PK)",
    guard=guard(),
    consistent=True,
)
MERGE_PERSONS = AccessPattern(
    id="SPARKS-W1",
    question="Make one person of two: the faces of the one become the other's; asked for again, it goes on",
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
    PERSON_NOW,
    PERSONS,
    FACES_OF_PERSON,
    COUNT_FACES,
    FACES_TO_MERGE,
    CREATE_PERSON,
    UPDATE_PERSON,
    MERGE_PERSONS,
)
