"""The invented matches of the demo."""

import random
from datetime import date
from itertools import pairwise

import msgspec
import pytest

from pipelines.demo.match import TEAMS, demo_match
from tests.support.cricket_count import count_match, winner
from tests.support.replays import names_of, recorded, replay_recordings, to_the_end
from tests.support.scorebook import counts_of_snapshot, without_hits

DAY = date(2026, 6, 25)


def test_the_demo_match_is_the_same_for_the_same_seed() -> None:
    first, second, other = (demo_match(random.Random(seed), 3, DAY) for seed in (7, 7, 8))

    assert msgspec.json.encode(first) == msgspec.json.encode(second)
    assert msgspec.json.encode(first) != msgspec.json.encode(other)
    assert first["info"]["dates"] == ["2026-06-25"]


def test_demo_matches_are_realistic() -> None:
    documents = [demo_match(random.Random(seed), seed, DAY) for seed in range(100)]
    totals = [innings["runs"] for document in documents for innings in count_match(document)]
    wickets = [innings["wickets"] for document in documents for innings in count_match(document)]
    chased = [document for document in documents if "wickets" in document["info"]["outcome"].get("by", {})]

    assert 130 <= sum(totals) / len(totals) <= 170
    assert min(totals) > 40
    assert max(totals) < 260
    assert 5 <= sum(wickets) / len(wickets) <= 8
    assert 30 <= len(chased) <= 70
    assert {team for document in documents for team in document["info"]["teams"]} == TEAMS.keys()


@pytest.mark.parametrize("seed", range(12))
async def test_a_demo_match_is_cricket(seed: int) -> None:
    document = demo_match(random.Random(seed), seed, DAY)
    recording = recorded(document)

    *_, last = await to_the_end(replay_recordings(recording, balls_per_tick=5))

    first, second = count_match(document)
    assert counts_of_snapshot(last, names_of(recording, document)) == without_hits([first, second])
    assert all(float(line["overs"]) <= 4 for innings in (first, second) for line in innings["bowling"].values())
    assert all(len(eleven) == len(set(eleven)) == 11 for eleven in document["info"]["players"].values())
    for innings in (first, second):
        assert innings["wickets"] == 10 or innings["overs"] == "20" or innings["runs"] > first["runs"]
    best = first["team"] if first["runs"] > second["runs"] else second["team"]
    assert winner(document) == (None if first["runs"] == second["runs"] else best)
    for played in document["innings"]:
        bowlers = [over["deliveries"][0]["bowler"] for over in played["overs"]]
        assert all(bowler != following for bowler, following in pairwise(bowlers))
