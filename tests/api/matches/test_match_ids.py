"""The ids of a match's parts: derived from keys, the same wherever an object appears, and different for others."""

from collections.abc import Iterator
from typing import Any

from datastore.matches.cricket import Venue
from pipelines.matches.live.poller import TickOutcome
from resolvers.shared.global_ids import global_id
from tests.support.active_matches import begin
from tests.support.cricket_pipeline import PipelineInstance
from tests.support.fixture_steps import planned_match, put_fixtures, store_played_match
from tests.support.match_updates import register_at_version_1
from tests.support.served import Served

LIVE = """
  __typename id matchId innings { __typename id number extras { __typename id total } }
  batting { __typename id playerId } bowling { __typename id playerId } partnership { __typename id runs }
  recentBalls { __typename id ballId wickets { __typename id playerId } }
"""
MATCH = f"""match(id: "m1") {{
  id innings {{ __typename id number }} liveScore {{ {LIVE} }}
  scorecards {{
    __typename id inningsNumber batting {{ __typename id playerId }} bowling {{ __typename id playerId }}
    fallOfWickets {{ __typename id wicketNumber }} partnership {{ __typename id }}
  }}
  displayState(teamId: "granite-foxes") {{
    team {{ __typename id teamId innings {{ __typename id number }} }} opponent {{ __typename id teamId }}
    batters {{ __typename id }} bowler {{ __typename id }}
  }}
}}"""
UPDATES = f"""subscription {{ matchUpdates(matchId: "m1") {{
  __typename id version events {{ __typename id eventId ball {{ __typename id ballId }} }} liveScore {{ {LIVE} }}
}} }}"""


def objects_with_ids(value: Any) -> Iterator[dict[str, Any]]:
    """Yield all objects with an id in a response."""
    if isinstance(value, list):
        for each in value:
            yield from objects_with_ids(each)
    elif isinstance(value, dict):
        if "id" in value:
            yield value
        for each in value.values():
            yield from objects_with_ids(each)


async def tick_until_changed(instance: PipelineInstance) -> None:
    """Tick until the match has its next version. The first tick is the baseline, and changes nothing."""
    while await instance.poller.tick("m1") is not TickOutcome.CHANGED:
        pass


async def test_parts_have_ids_of_their_keys_in_every_place(served: Served) -> None:
    instance = await begin(served, "m1", balls=30)
    listener = await served.listen(UPDATES)
    await listener.event()
    await tick_until_changed(instance)
    update = (await listener.event())["matchUpdates"]

    answer = await served.ask(f"{{ {MATCH} }}")

    assert answer.errors is None
    match = answer.data["match"]
    live = match["liveScore"]
    assert update["id"] == global_id("MatchUpdate", "m1", str(update["version"]))
    assert live["id"] == update["liveScore"]["id"] == global_id("LiveScore", "m1")
    assert [score["id"] for score in match["innings"]] == [global_id("Innings", "m1", "1")]
    assert live["innings"][0]["id"] == match["innings"][0]["id"]
    (card,) = match["scorecards"]
    assert card["id"] == global_id("Scorecard", "m1", "1")
    assert {line["id"] for line in live["batting"]} <= {line["id"] for line in card["batting"]}
    assert {line["id"] for line in live["bowling"]} <= {line["id"] for line in card["bowling"]}
    player = card["batting"][0]["playerId"]
    assert card["batting"][0]["id"] == global_id("BattingLine", "m1", "1", player)
    for ball in live["recentBalls"]:
        assert ball["id"] == global_id("Ball", "m1", str(ball["ballId"]))
    for event in update["events"]:
        assert event["id"] == global_id("CricketEvent", event["eventId"])
        assert event["ball"] is None or event["ball"]["id"] == global_id("Ball", "m1", str(event["ball"]["ballId"]))
    team, opponent = match["displayState"]["team"], match["displayState"]["opponent"]
    assert team["id"] == global_id("DisplaySide", "m1", "granite-foxes")
    assert opponent["id"] == global_id("DisplaySide", "m1", opponent["teamId"])


async def test_objects_of_one_id_have_equal_content(served: Served) -> None:
    instance = await begin(served, "m1", balls=60)
    await tick_until_changed(instance)

    answer = await served.ask(f"{{ {MATCH} }}")

    by_id: dict[str, Any] = {}
    for each in objects_with_ids(answer.data):
        seen = by_id.setdefault(each["id"], each)
        shared = seen.keys() & each.keys()
        assert {name: seen[name] for name in shared if not isinstance(seen[name], list | dict)} == {
            name: each[name] for name in shared if not isinstance(each[name], list | dict)
        }
    assert len(by_id) > 15


async def test_parts_of_other_matches_have_other_ids_and_equal_values_the_same(served: Served) -> None:
    for match_id in ("m1", "m2"):
        await store_played_match(served, planned_match(match_id, venue=Venue("Here")))

    answer = await served.ask(
        '{ matches(ids: ["m1", "m2"]) { innings { id extras { id } } venue { id } scorecards { id batting { id } } } }'
    )

    first, second = answer.data["matches"]
    assert first["innings"][0]["id"] != second["innings"][0]["id"]
    assert first["scorecards"][0]["batting"][0]["id"] != second["scorecards"][0]["batting"][0]["id"]
    assert first["innings"][0]["extras"]["id"] == second["innings"][0]["extras"]["id"]
    assert first["venue"]["id"] == second["venue"]["id"]


async def test_a_live_match_and_its_updates_have_the_live_score_of_the_match(served: Served) -> None:
    await register_at_version_1(served, "m1")
    await put_fixtures(served, planned_match("m2"))
    listener = await served.listen("subscription { liveScores { id updates { id liveScore { id } } } }")

    snapshot = (await listener.event())["liveScores"]
    answer = await served.ask("{ liveMatches { id liveScore { id } } }")

    assert answer.data["liveMatches"] == [
        {"id": global_id("LiveMatch", "m1"), "liveScore": {"id": global_id("LiveScore", "m1")}}
    ]
    assert snapshot["id"]
    assert snapshot["updates"] == [
        {"id": global_id("MatchUpdate", "m1", "1"), "liveScore": {"id": global_id("LiveScore", "m1")}}
    ]
