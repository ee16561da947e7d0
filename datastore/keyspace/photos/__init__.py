"""The table `sparks` of the photo library: a module for each kind of item."""

from datastore.keyspace.photos import events, faces, livestreams, persons, stripping, uploads, users
from datastore.keyspace.photos import photos as library
from datastore.keyspace.photos.table import SPARKS
from datastore.model.access_patterns import Table, patterns_of

TABLES: tuple[Table, ...] = (SPARKS,)
PATTERNS = patterns_of(users, library, uploads, persons, faces, livestreams, events, stripping)
