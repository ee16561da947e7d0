"""The DynamoDB reads of events: a payload that the change stream delivers is not read again."""

from collections.abc import Callable
from typing import Any

import pytest

from datastore.dynamodb.calls import Call
from tests.support.active_matches import begin
from tests.support.feed_items import post_item, user_item
from tests.support.fixture_steps import ask_system
from tests.support.home_feeds import put_feed_items
from tests.support.match_updates import advance, play_out, register_at_version_1
from tests.support.served import Served

LIVE = "id matchId leagueCode version status phase innings { id runs overs } target { runs } result { text } note"
OF_MATCH = f'matchUpdates(matchId: "m1") {{ version isSnapshot match {{ {LIVE} %s }} }}'


def later_reads(served: Served, table: str) -> Callable[[], list[str]]:
    """Return a function that returns the operations that read the table from now on."""
    calls: list[Call] = []
    assert served.gateway.database is not None
    served.gateway.database.client.add_call_listener(calls.append)
    reads = ("GetItem", "BatchGetItem", "Query", "Scan")
    return lambda: [
        call.operation
        for call in calls
        if call.operation in reads and any(name.endswith(f"__{table}") for name in call.tables)
    ]


@pytest.mark.parametrize(("further", "expected"), [("", []), ("round", ["GetItem"])])
async def test_an_update_of_a_match_is_read_only_for_fields_that_it_lacks(
    served: Served, further: str, expected: list[str]
) -> None:
    await register_at_version_1(served, "m1")
    listener = await served.listen(f"subscription {{ {OF_MATCH % further} }}")
    assert (await listener.event())["matchUpdates"]["match"]["version"] == 1
    reads = later_reads(served, "cricket-fixtures")

    await advance(served)
    update = (await listener.event())["matchUpdates"]

    assert update["match"]["id"] is not None
    if not further:
        assert (update["version"], update["match"]["version"], update["match"]["note"]) == (2, 2, "version 2")
    assert reads() == expected


async def test_the_matches_of_live_scores_are_not_read_again(served: Served) -> None:
    await register_at_version_1(served, "m1", "m2")
    listener = await served.listen("subscription { liveScores { updates { match { matchId version ... { note } } } } }")
    await listener.event()
    reads = later_reads(served, "cricket-fixtures")

    await advance(served, "m2")

    assert await listener.event() == {
        "liveScores": {"updates": [{"match": {"matchId": "m2", "version": 2, "note": "version 2"}}]}
    }
    assert reads() == []


async def test_the_match_of_an_update_equals_the_stored_match(served: Served) -> None:
    instance = await begin(served, "m1", balls=60)
    listener = await served.listen(f"subscription {{ {OF_MATCH % ''} }}")
    last = (await listener.event())["matchUpdates"]
    await play_out(instance, "m1")
    while last["match"]["result"] is None:
        last = (await listener.event())["matchUpdates"]

    stored = await served.ask(f'{{ match(id: "m1") {{ {LIVE} }} }}')

    assert last["isSnapshot"] is False
    assert last["match"] == stored.data["match"]


async def test_a_snapshot_shows_the_match_as_an_operator_changed_it(served: Served) -> None:
    await register_at_version_1(served, "m1")
    listener = await served.listen(f"subscription {{ {OF_MATCH % ''} }}")
    await listener.event()

    await ask_system(served, 'mutation { updateFixture(id: "m1", input: {note: "By hand"}) { note } }')
    update = (await listener.event())["matchUpdates"]

    assert (update["isSnapshot"], update["match"]["note"]) == (True, "By hand")


async def test_the_post_of_new_counts_is_not_read_again(served: Served) -> None:
    await put_feed_items(served, user_item("ada"), post_item("p"))
    listener = await served.listen(
        """subscription { postEngagement(postId: "p") {
          likeCount post { postId text likeCount mentionedUserIds authorId } } }"""
    )
    await listener.event()
    reads = later_reads(served, "feed")

    await put_feed_items(served, post_item("p") | {"likes": 1})
    event: Any = (await listener.event())["postEngagement"]

    assert (event["likeCount"], event["post"]["likeCount"], event["post"]["authorId"]) == (1, 1, "ada")
    assert reads() == []
