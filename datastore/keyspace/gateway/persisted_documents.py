"""Persisted documents in the table `gateway`: `DOCUMENTS` / `<id>`, one item each."""

from datastore.keyspace.gateway.table import GATEWAY
from datastore.model.access_patterns import AccessPattern, Who
from datastore.model.composite_keys import Key, join, split

DOCUMENTS = "DOCUMENTS"


def document(document_id: str) -> Key:
    return Key(DOCUMENTS, join(document_id))


def document_id(key: Key) -> str:
    return split(key.sort)[0]


DOCUMENT = AccessPattern(
    id="GW-D1",
    question="The text of a persisted document by its id",
    table=GATEWAY,
    operations=("GetItem", "BatchGetItem"),
    who=Who.INTERNAL,
    key="PK = DOCUMENTS, SK = <id>",
)
PUT_DOCUMENT = AccessPattern(
    id="GW-D2",
    question="Store a persisted document, unless its id is stored with another text",
    table=GATEWAY,
    operations=("PutItem",),
    who=Who.INTERNAL,
    condition="attribute_not_exists(PK) OR #text = :text",
)
ALL_DOCUMENTS = AccessPattern(
    id="GW-D3",
    question="All persisted documents, ordered by id",
    table=GATEWAY,
    operations=("Query",),
    who=Who.INTERNAL,
    key="PK = :partition",
)
DELETE_DOCUMENT = AccessPattern(
    id="GW-D4",
    question="Delete a persisted document",
    table=GATEWAY,
    operations=("DeleteItem",),
    who=Who.INTERNAL,
)

PATTERNS = (DOCUMENT, PUT_DOCUMENT, ALL_DOCUMENTS, DELETE_DOCUMENT)
