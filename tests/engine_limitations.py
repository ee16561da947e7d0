"""What engines other than dynoxide run, and cannot do, by test. A listed test that passes fails the run."""

from collections.abc import Mapping

import pytest

# The modules that other engines run: the datastore's, and those of each system's API.
COVERED = frozenset(
    f"test_{name}"
    for name in (
        *(
            "writing",
            "changes",
            "tables",
            "attributes",
            "client",
            "client_writes",
            "client_meter",
            "effects",
            "loading",
        ),
        *("pages", "expiry", "versions", "version_writes", "consumer", "notifying", "shared_reads", "remembered"),
        *("sightings", "expired_sightings", "trust"),
        *("posts", "comments", "follows", "home_feeds", "likes", "leaderboards", "notifications", "users"),
        *("photos", "uploads", "photo_users", "persons", "faces", "photos_of_person", "livestreams"),
        *("earthquakes", "earthquake_pages", "request_logs", "ingest"),
        *("fixtures", "leagues", "teams", "devices", "match_follows", "live_activities", "active_matches"),
    )
)
LIMITATIONS: Mapping[str, Mapping[str, str]] = {
    "dynamodb-local": {},
    "ministack": {},
}


def apply(engine: str, items: list[pytest.Item]) -> None:
    """Keep the tests that run on the chosen engine, and expect those to fail that it cannot pass."""
    if engine == "dynoxide":
        return
    items[:] = [item for item in items if item.path.stem in COVERED and "engine" in getattr(item, "fixturenames", ())]
    for item in items:
        reason = LIMITATIONS[engine].get(item.nodeid.removeprefix("tests/"))
        if reason is not None:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
