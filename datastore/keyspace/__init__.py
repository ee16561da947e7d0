"""The tables and access patterns. A new system adds a module beside these and a line here."""

from datastore.keyspace import earthquake_statistics, earthquakes, feeds, gateway, matches, photos, sightings
from datastore.model.access_patterns import AccessPattern, Table

TABLES: tuple[Table, ...] = (
    sightings.BLIP,
    *feeds.TABLES,
    *photos.TABLES,
    earthquakes.EARTHQUAKES,
    *matches.TABLES,
    *gateway.TABLES,
)
TABLES_BY_NAME = {table.name: table for table in TABLES}
PATTERNS: tuple[AccessPattern, ...] = (
    *sightings.PATTERNS,
    *feeds.PATTERNS,
    *photos.PATTERNS,
    *earthquakes.PATTERNS,
    *earthquake_statistics.PATTERNS,
    *matches.PATTERNS,
    *gateway.PATTERNS,
)
