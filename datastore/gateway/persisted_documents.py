"""Persisted documents: GraphQL documents that clients name by an id instead of sending them (GW-D1 to GW-D4)."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from datastore.dynamodb.records import readable_records, record
from datastore.keyspace import gateway as keys
from datastore.model.composite_keys import Key
from datastore.model.timestamps import from_iso, iso
from datastore.session.store import Store


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A persisted document."""

    document_id: str
    text: str
    added_at: datetime


class StoredDocuments:
    """The persisted documents, with one method for each access pattern."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def by_id(self, document_id: str) -> StoredDocument | None:
        """GW-D1: return a document, or None."""
        return record(document_from, await self._store.get(keys.DOCUMENT, keys.document(document_id)))

    async def put(self, document_id: str, text: str, now: datetime) -> StoredDocument:
        """GW-D2: store a document. If the id has another text already, return the stored document."""
        document = StoredDocument(document_id, text, now)
        written = await self._store.put(keys.PUT_DOCUMENT, _item(document), text=text)
        return document if written.ok or written.item is None else document_from(written.item)

    async def all(self) -> AsyncIterator[StoredDocument]:
        """GW-D3: yield all documents, in the order of their ids."""
        values = {"partition": keys.DOCUMENTS}
        async for item in self._store.query_all(keys.ALL_DOCUMENTS, values):
            for document in readable_records(document_from, [item]):
                yield document

    async def delete(self, document_id: str) -> bool:
        """GW-D4: delete a document. Return whether it existed."""
        return (await self._store.delete(keys.DELETE_DOCUMENT, keys.document(document_id))).item is not None


def document_from(item: Mapping[str, Any]) -> StoredDocument:
    document_id = keys.document_id(Key(item["PK"], item["SK"]))
    return StoredDocument(document_id, item["text"], from_iso(item["addedAt"]))


def _item(document: StoredDocument) -> dict[str, Any]:
    key = keys.document(document.document_id)
    return {"PK": key.partition, "SK": key.sort, "text": document.text, "addedAt": iso(document.added_at)}
