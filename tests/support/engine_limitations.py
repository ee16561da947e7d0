"""The known limitations of engines, by test, and the tests for other engines. A listed test must fail."""

from collections.abc import Mapping

import pytest

# The modules that other engines run: the datastore's, and those of each system's API.
COVERED = frozenset(
    {
        "test_active_matches",
        "test_batch_write",
        "test_change_feed",
        "test_client",
        "test_client_meter",
        "test_client_writes",
        "test_codec",
        "test_comment_lists",
        "test_comments",
        "test_consumer",
        "test_days_without_earthquakes",
        "test_devices",
        "test_earthquake_pages",
        "test_earthquakes",
        "test_exactly_once",
        "test_expected_versions",
        "test_expired_sightings",
        "test_faces",
        "test_fixture_edits",
        "test_fixture_fields",
        "test_fixture_reads",
        "test_fixture_sync",
        "test_follows",
        "test_home_feeds",
        "test_ingest",
        "test_leaderboards",
        "test_league_pages",
        "test_leagues",
        "test_likes",
        "test_live_activities",
        "test_live_activity_lists",
        "test_livestreams",
        "test_match_followers",
        "test_match_follows",
        "test_notification_handler",
        "test_notifications",
        "test_pagination",
        "test_persons",
        "test_photo_lists",
        "test_photo_users",
        "test_photos",
        "test_photos_by_person",
        "test_point_reads",
        "test_point_reads_after_lists",
        "test_post_lists",
        "test_posts",
        "test_read_cache",
        "test_reads_in_flight",
        "test_reporter_trust",
        "test_request_logs",
        "test_request_rules",
        "test_resume",
        "test_resume_gateways",
        "test_scan_cache",
        "test_search",
        "test_search_sync",
        "test_sighting_subscriptions",
        "test_sightings",
        "test_stream_faults",
        "test_tables",
        "test_teams",
        "test_trending",
        "test_ttl_sweeper",
        "test_upload_expiry",
        "test_uploads",
        "test_users",
        "test_version_writes",
        "test_watches",
    }
)
WORDS = "it words its refusals otherwise"
OTHER_UNITS = "it consumes and reports other units"
NO_UNITS = "it reports no units of BatchGetItem"
PATIENCE = 4  # the factor of the time limits on slower engines, compared to dynoxide


def _taken(*requests: str) -> dict[str, str]:
    """Name the requests that break a rule but that the engine accepts, by their names in test_request_rules."""
    return {
        f"test_request_rules.py::test_an_engine_refuses_it[{name}]": "AWS refuses it; request_rules.py checks it"
        for name in requests
    }


UNKNOWN = {
    "test_request_rules.py::test_an_engine_refuses_it[unknown parameter]": "it ignores unknown parameters, as AWS does",
}
WITNESS = "test_client_writes.py::test_only_one_of_several_concurrent_deletes_returns_the_item"
LIMITATIONS: Mapping[str, Mapping[str, str]] = {
    "dynoxide": UNKNOWN
    | _taken(
        *("unused value", "many operators", "many operands", "long key of an index"),
        *("empty partition in a query", "empty bound in a query", "empty beginning in a query"),
        *("many attributes of an index", "many attributes of indexes"),
    ),
    "dynamodb-local": {
        "test_client.py::test_refusals_of_the_engine_keep_their_code_and_message": WORDS,
        "test_client.py::test_a_prepared_request_is_sent_unchanged_and_metered": OTHER_UNITS,
        "test_point_reads.py::test_keys_of_several_tables_share_a_call": OTHER_UNITS,
        "test_exactly_once.py::test_an_impossible_effect_raises_and_leaves_nothing_behind": WORDS,
        "test_codec.py::test_any_value_is_returned_as_it_was_stored": "it refuses empty attribute names, as AWS does",
        "test_codec.py::test_a_number_read_and_written_back_is_the_same_text": "it writes 1E+1 as 10, as AWS does",
        WITNESS: "deletes at the same time may all return the item",
        **UNKNOWN,
        **_taken("many attributes of an index"),
    },
    "ministack": {
        "test_client.py::test_refusals_of_the_engine_keep_their_code_and_message": "it looks for the table first",
        "test_client_meter.py::test_the_units_are_those_that_boto3_reports": NO_UNITS,
        "test_client_meter.py::test_every_operation_is_supported_and_metered": NO_UNITS,
        "test_point_reads.py::test_keys_of_several_tables_share_a_call": NO_UNITS,
        "test_notification_handler.py::test_removed_likes_cost_one_read_of_their_posts": NO_UNITS,
        "test_read_cache.py::test_the_cache_is_bounded_by_the_read_units_of_its_items": NO_UNITS,
        "test_expired_sightings.py::test_expired_sightings_cost_nothing": OTHER_UNITS,
        "test_point_reads.py::test_large_results_are_read_in_rounds": "its BatchGetItem answers have no bound",
        **UNKNOWN,
        **_taken(
            *("many operators", "many operands", "long key of an index", "filter on a key"),
            *("many attributes of an index", "many attributes of indexes", "many indexes"),
        ),
    },
}

# Tests that an engine passes only sometimes, with the listed test that always fails for the same reason. They are not
# run.
UNDECIDED: Mapping[str, Mapping[str, str]] = {
    "dynamodb-local": {
        "test_likes.py::test_each_of_concurrent_likes_is_removed_once_or_stored": WITNESS,
        "test_match_follows.py::test_one_of_twenty_concurrent_unfollows_returns_the_follow": WITNESS,
    },
}


def apply(engine: str, items: list[pytest.Item]) -> None:
    """Keep the tests that run on the chosen engine, and mark those that it cannot pass as expected failures."""
    if engine != "dynoxide":
        items[:] = [
            item
            for item in items
            if item.path.stem in COVERED
            and "engine" in getattr(item, "fixturenames", ())
            and _name(item) not in UNDECIDED.get(engine, {})
        ]
        for item in items:
            given = item.get_closest_marker("timeout")
            seconds = given.args[0] if given else float(item.config.getini("timeout"))
            item.add_marker(pytest.mark.timeout(PATIENCE * seconds), append=False)
    for item in items:
        reason = LIMITATIONS[engine].get(_name(item))
        if reason is not None:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))


def _name(item: pytest.Item) -> str:
    return f"{item.path.name}::{item.nodeid.partition('::')[2]}"
