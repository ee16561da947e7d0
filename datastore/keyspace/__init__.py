"""The tables and access patterns. A new system adds a module beside these and a line here."""

from datastore.keyspace import earthquake_statistics, earthquakes, feeds, gateway, matches, photos, sightings
from datastore.model.access_patterns import AccessPattern, Table, patterns_of

TABLES: tuple[Table, ...] = (
    sightings.BLIP,
    *feeds.TABLES,
    *photos.TABLES,
    earthquakes.EARTHQUAKES,
    *matches.TABLES,
    gateway.GATEWAY,
)
TABLES_BY_NAME = {table.name: table for table in TABLES}
PATTERNS: tuple[AccessPattern, ...] = (
    *patterns_of(sightings),
    *feeds.PATTERNS,
    *photos.PATTERNS,
    *patterns_of(earthquakes, earthquake_statistics),
    *matches.PATTERNS,
    *patterns_of(gateway),
)
