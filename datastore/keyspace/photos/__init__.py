"""The photo library's table `sparks`: a page for each kind of item."""

from datastore.declarations import AccessPattern, Table
from datastore.keyspace.photos import events, faces, library, livestreams, persons, stripping, uploads, users
from datastore.keyspace.photos.table import SPARKS

TABLES: tuple[Table, ...] = (SPARKS,)
PATTERNS: tuple[AccessPattern, ...] = (
    *users.PATTERNS,
    *library.PATTERNS,
    *uploads.PATTERNS,
    *persons.PATTERNS,
    *faces.PATTERNS,
    *livestreams.PATTERNS,
    *events.PATTERNS,
    *stripping.PATTERNS,
)
