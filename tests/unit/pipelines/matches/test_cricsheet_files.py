"""The facts, the optional parts and the damage of Cricsheet files."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pipelines.matches.providers.cricsheet import reader as cricsheet
from pipelines.matches.providers.cricsheet.reader import load
from pipelines.matches.providers.provider import Malformed, ProviderError
from tests.support.cricket_count import Json
from tests.support.cricket_samples import (
    BLUES,
    REDS,
    ball,
    innings,
    match_json,
    over,
)
from tests.support.replays import SHORT, recorded


def test_the_facts_of_a_match() -> None:
    women = match_json(
        innings(REDS, over(0, ball())), gender="female", team_type="international", toss={"uncontested": True}
    )

    recording, other = recorded(SHORT), recorded(women)

    assert recording.match.league_code == "HC"
    assert recording.match.season_id == "harbour-cup-t20-2026"
    assert recording.match.start_time == datetime(2026, 6, 25, 11, tzinfo=UTC)
    assert (recording.match.round, recording.match.format) == ("Match 1", "T20")
    assert recording.match.toss is not None
    assert recording.match.toss.team_id == "reds"
    assert [team.code for team in recording.teams] == ["RED", "BLU"]
    assert (other.match.league_id, other.match.league_code) == ("harbour-cup-t20-women", "HCT20W")
    assert [team.team_id for team in other.teams] == ["reds-women", "blues-women"]
    assert (other.match.toss, other.match.format, other.teams[0].national) == (None, "T20I", True)


def test_missing_optional_parts_and_unknown_keys_of_a_file() -> None:
    document = match_json(innings(REDS, over(0, ball(out="R1", kind="caught"), ball(batter="R3"))), innings(BLUES))
    for name in ("event", "season", "players", "registry", "venue", "city", "toss", "overs", "outcome", "gender"):
        del document["info"][name]
    del document["meta"]
    document["info"]["weather"] = {"rain": True}
    delivery = document["innings"][0]["overs"][0]["deliveries"][0]
    delivery |= {"review": {"by": REDS}, "speed": 140.5}
    delivery["wickets"][0]["fielders"] = [{"substitute": True}]

    recording = recorded(document)

    assert (recording.match.league_id, recording.match.league_code) == ("t20-matches-t20", "T20M")
    assert recording.balls[0].batter_id == "name-r1"
    assert recording.balls[0].wickets[0].fielders == ("sub",)
    assert (recording.match.venue, recording.match.season_id, recording.result) == (None, None, None)


def change_at(path: str, value: Any) -> Callable[[Json], None]:
    def apply(document: Json) -> None:
        *way, last = [int(part) if part.isdigit() else part for part in path.split(".")]
        place: Any = document
        for part in way:
            place = place[part]
        place[last] = value

    return apply


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (
            change_at("innings.0.overs.1.over", "two"),
            r"Expected `int`, got `str` - at `\$.innings\[0\].overs\[1\].over`",
        ),
        (change_at("innings.0.overs.1.over", 0), "innings 1: over 0 comes after over 0"),
        (
            change_at("innings.0.overs.0.deliveries.2.runs.total", 3),
            "innings 1, over 0, ball 3: its runs do not add up",
        ),
        (change_at("innings.0.overs.0.deliveries.2.runs.total", -1), "Expected `int` >= 0"),
        (change_at("innings.0.team", "Greens"), "'Greens' is not one of the two teams"),
        (change_at("info.outcome.winner", "Greens"), "'Greens' is not one of the two teams"),
        (change_at("info.toss.winner", "Greens"), "'Greens' is not one of the two teams"),
        (change_at("info.teams", ["Reds"]), "Expected `array` of length 2"),
        (change_at("info.dates", []), "Expected `array` of length >= 1"),
        (change_at("info.dates", ["yesterday"]), "date"),
        (change_at("info.balls_per_over", 0), "Expected `int` >= 1"),
        (
            change_at("innings.0.miscounted_overs", {"1": {"balls": "some"}}),
            "miscounted over 1: 'some' is not a number",
        ),
        (change_at("innings.0.overs.0.deliveries", [ball()] * 100), "Expected `array` of length <= 99"),
        (change_at("info", None), "Expected `object`, got `null`"),
    ],
)
def test_the_error_of_a_damaged_file_has_its_name_and_the_reason(
    damage: Callable[[Json], None], expected: str, tmp_path: Path
) -> None:
    document = json.loads(json.dumps(SHORT))
    damage(document)
    path = tmp_path / "broken.json"
    path.write_text(json.dumps(document))

    with pytest.raises(Malformed, match=expected) as caught:
        load(path)
    assert str(caught.value).startswith("broken.json: ")


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"\xff\xfe", b'"', b"[" * 100_000, b'{"innings": [' + b'{"a":' * 9999]
)
def test_a_file_that_is_not_a_match(text: bytes, tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_bytes(text)

    with pytest.raises(Malformed, match=r"^broken\.json: not a match in Cricsheet's format: "):
        load(path)


def test_a_file_that_is_too_large_or_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "match.json"
    path.write_text(json.dumps(SHORT))
    assert load(path).match_id == "match"
    monkeypatch.setattr(cricsheet, "MAX_FILE_BYTES", 100)

    with pytest.raises(Malformed, match=r"match\.json: [\d,]+ bytes are more than the limit of 100"):
        load(path)
    with pytest.raises(ProviderError, match=r"none\.json: cannot be read: No such file"):
        load(tmp_path / "none.json")
