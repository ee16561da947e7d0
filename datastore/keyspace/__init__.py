"""All tables and access patterns there are. A new system is a new page beside these and a line here."""

from datastore.declarations import AccessPattern, Table
from datastore.keyspace import earthquakes, feeds, matches, sightings

TABLES: tuple[Table, ...] = (sightings.BLIP, *feeds.TABLES, earthquakes.EARTHQUAKES, *matches.TABLES)
PATTERNS: tuple[AccessPattern, ...] = (*sightings.PATTERNS, *feeds.PATTERNS, *earthquakes.PATTERNS, *matches.PATTERNS)
