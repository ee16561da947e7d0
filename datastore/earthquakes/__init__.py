"""Earthquakes: events with their ids and revisions, daily statistics, and the request log (QUAKE-1 to QUAKE-6)."""
