"""Small handwritten matches in Cricsheet's JSON format."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.served import REAL_DATA

Json = dict[str, Any]

RECORDINGS = REAL_DATA / "cricsheet"
FILES = sorted(RECORDINGS.glob("*.json")) if RECORDINGS.is_dir() else []
real_data = pytest.mark.skipif(not FILES, reason="the recorded matches are not here")

REDS, BLUES = "Reds", "Blues"
REDS_ELEVEN = [f"R{number}" for number in range(1, 12)]
BLUES_ELEVEN = [f"B{number}" for number in range(1, 12)]


def real_files() -> list[Any]:
    """Return the real matches as parameters. Without them a test is skipped."""
    return [pytest.param(path, id=path.stem) for path in FILES] or [
        pytest.param(Path(), marks=pytest.mark.skip(reason="the recorded matches are not here"))
    ]


def ball(
    runs: int = 0,
    *,
    by: str = "B11",
    batter: str = "R1",
    partner: str = "R2",
    out: str | None = None,
    kind: str = "bowled",
    fielders: tuple[str, ...] = (),
    non_boundary: bool = False,
    replacements: Json | None = None,
    **extras: int,
) -> Json:
    """Return a delivery. `out` is the dismissed batter; `extras` are wides=1, noballs=1, byes=…"""
    more = sum(extras.values())
    delivery: Json = {
        "batter": batter,
        "bowler": by,
        "non_striker": partner,
        "runs": {"batter": runs, "extras": more, "total": runs + more},
    }
    if non_boundary:
        delivery["runs"]["non_boundary"] = True
    if extras:
        delivery["extras"] = extras
    if replacements:
        delivery["replacements"] = replacements
    if out:
        wicket: Json = {"player_out": out, "kind": kind}
        if fielders:
            wicket["fielders"] = [{"name": name} for name in fielders]
        delivery["wickets"] = [wicket]
    return delivery


def over(index: int, *balls: Json) -> Json:
    return {"over": index, "deliveries": list(balls)}


def innings(team: str, *overs: Json, **more: Any) -> Json:
    return {"team": team, "overs": list(overs), **more}


def blues(runs: int = 0, **more: Any) -> Json:
    """Return a delivery in an innings of the Blues."""
    return ball(runs, **{"by": "R11", "batter": "B1", "partner": "B2"} | more)


def match_json(*played: Json, **info: Any) -> Json:
    """Return a match of the Reds and the Blues. `info` overrides its facts."""
    facts = {
        "balls_per_over": 6,
        "city": "Port Alder",
        "dates": ["2026-06-25"],
        "event": {"name": "Harbour Cup", "match_number": 1},
        "gender": "male",
        "match_type": "T20",
        "outcome": {"winner": REDS, "by": {"runs": 3}},
        "overs": 20,
        "players": {REDS: REDS_ELEVEN, BLUES: BLUES_ELEVEN},
        "registry": {"people": {name: f"id-{name.lower()}" for name in REDS_ELEVEN + BLUES_ELEVEN}},
        "season": 2026,
        "team_type": "club",
        "teams": [REDS, BLUES],
        "toss": {"winner": REDS, "decision": "bat"},
        "venue": "Lantern Park",
    }
    meta = {"data_version": "1.1.0", "created": "2026-06-25", "revision": 1}
    return {"meta": meta, "info": facts | info, "innings": list(played)}
