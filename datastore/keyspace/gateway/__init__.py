"""The table `gateway`: a module for each kind of item."""

from datastore.keyspace.gateway import idempotency_records, persisted_documents
from datastore.keyspace.gateway.table import GATEWAY
from datastore.model.access_patterns import AccessPattern, Table

TABLES: tuple[Table, ...] = (GATEWAY,)
PATTERNS: tuple[AccessPattern, ...] = (*idempotency_records.PATTERNS, *persisted_documents.PATTERNS)
