"""The feed's pipeline: fan-out, counters, notifications, cleanup, and the search index."""
