"""The headers and payloads of pushes, and their shortening to 4,096 bytes."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from datastore.matches.cricket import MatchPhase
from datastore.matches.cricket_events import CricketEvent, CricketEventKind
from datastore.matches.display import DisplayBatter, DisplayBowler, DisplaySide, DisplayState
from pipelines.matches.push.apns import ApnsPushService
from pipelines.matches.push.apns_payload import collapse_id, content_state, end, start, update
from pipelines.matches.push.push_service import PushOutcome, Sent
from tests.support.apns_pushes import TOKEN, delivery, display, make
from tests.support.apns_server import ApnsServer, server
from tests.support.served import NOON
from tests.support.store_engines import ROOT

__all__ = ["delivery", "make", "server"]


def cricket_event(kind: CricketEventKind, text: str = "Out!") -> CricketEvent:
    return CricketEvent(f"m1:{kind}:{text}", kind, text)


# Headers and payloads
async def test_the_headers_and_the_payload_of_a_push(server: ApnsServer, delivery: ApnsPushService) -> None:
    wicket = update(display(), NOON, [cricket_event(CricketEventKind.WICKET, "Kishan c Dhoni b Jadeja 4")])

    sent = await delivery.send(TOKEN, wicket)

    assert sent == Sent(PushOutcome.DELIVERED)
    (request,) = server.requests
    assert request.token == TOKEN
    assert {name: value for name, value in request.headers.items() if name.startswith("apns")} == {
        "apns-push-type": "liveactivity",
        "apns-topic": "com.example.cricket.push-type.liveactivity",
        "apns-priority": "10",
        "apns-expiration": str(int(NOON.timestamp()) + 3600),
    }
    aps = request.aps
    assert (aps["timestamp"], aps["event"], aps["stale-date"]) == (
        int(NOON.timestamp()),
        "update",
        int(NOON.timestamp()) + 900,
    )
    assert aps["alert"] == {"title": "MUM 120/3 (15.4)", "body": "Kishan c Dhoni b Jadeja 4", "sound": "default"}
    assert aps["content-state"]["batters"][0] == {"name": "Rohit Sharma", "figures": "55 (38)", "onStrike": True}
    assert aps["content-state"]["team"]["score"] == "120/3"


@pytest.mark.parametrize(
    ("kinds", "priority", "alert"),
    [
        ([], 5, None),
        ([CricketEventKind.FOUR], 5, None),
        ([CricketEventKind.INNINGS_BREAK], 5, "innings_break"),
        ([CricketEventKind.FIFTY], 10, "fifty"),
        ([CricketEventKind.WICKET, CricketEventKind.INNINGS_BREAK, CricketEventKind.RESULT], 10, "result"),
        ([CricketEventKind.HUNDRED, CricketEventKind.WICKET], 10, "wicket"),
    ],
)
def test_important_events_have_a_high_priority_and_ring(
    kinds: list[CricketEventKind], priority: int, alert: str | None
) -> None:
    notification = update(display(), NOON, [cricket_event(kind, kind.value) for kind in kinds])

    body = orjson.loads(notification.body)["aps"].get("alert", {}).get("body")
    assert (notification.priority, body) == (priority, alert)
    # An alert must not be replaced before it is delivered.
    assert (notification.collapse_id is None) == (alert is not None)


def test_an_end_has_a_dismissal_date_and_a_start_has_attributes() -> None:
    ended = orjson.loads(end(display(phase=MatchPhase.FINISHED), NOON).body)["aps"]
    started = orjson.loads(start(display(), NOON).body)["aps"]

    assert (ended["event"], ended["dismissal-date"]) == ("end", int(NOON.timestamp()) + 3600)
    assert started["event"] == "start"
    assert started["attributes-type"] == "MatchActivityAttributes"
    assert started["attributes"] == {
        "matchId": "m1",
        "teamId": "1",
        "opponentId": "2",
        "league": None,
        "startTime": int(NOON.timestamp()),
    }
    assert started["alert"]["title"] == "Mumbai v Chennai"


def test_every_key_of_the_content_state_is_present_and_documented() -> None:
    page = (ROOT / "docs" / "live-activities.md").read_text()
    bare = display(batters=(), bowler=None, recent="", target=None, required_runs=None, balls_left=None)

    full, empty = content_state(display()), content_state(bare)

    assert full.keys() == empty.keys()
    assert [key for key in [*full, *full["team"], *full["batters"][0]] if f"`{key}`" not in page] == []
    assert [kind for kind in MatchPhase if f"`{kind.value}`" not in page] == []


# Shortening
LONG = "Ω" * 400


@pytest.mark.parametrize(
    ("texts", "kept"),
    [
        ({"recent": "W " * 2000}, {"recent": "", "name": "Rohit Sharma", "alert": True}),
        ({"batters": (DisplayBatter("Rohit " * 700 + "Sharma"),)}, {"recent": "", "name": "Sharma", "alert": True}),
        ({"headline": LONG * 5}, {"recent": "", "name": "Sharma", "alert": False}),
    ],
)
def test_a_payload_is_shortened_in_order_of_importance(texts: dict[str, Any], kept: dict[str, Any]) -> None:
    notification = update(display(**texts), NOON, [cricket_event(CricketEventKind.WICKET)])

    aps = orjson.loads(notification.body)["aps"]
    assert len(notification.body) <= 4096
    state = aps["content-state"]
    assert {"recent": state["recent"], "name": state["batters"][0]["name"], "alert": "alert" in aps} == kept


anything = st.text(max_size=3000)


players = st.builds(DisplayBatter, name=anything, runs=st.integers(0, 10**9))


teams = st.builds(DisplaySide, team_id=st.text(max_size=100), name=anything, code=anything, score=anything)


@hypothesis_settings(max_examples=50, deadline=None)
@given(
    st.builds(
        display,
        team=teams,
        opponent=teams,
        league=anything,
        status=anything,
        headline=anything,
        situation=anything,
        recent=anything,
        last_event=anything,
        batters=st.lists(players, max_size=5).map(tuple),
        bowler=st.builds(DisplayBowler, name=anything),
    ),
    anything,
)
def test_every_payload_fits(state: DisplayState, text: str) -> None:
    events = [cricket_event(CricketEventKind.WICKET, text)]

    for notification in (update(state, NOON, events), end(state, NOON, events), start(state, NOON)):
        assert len(notification.body) <= 4096
        aps = orjson.loads(notification.body)["aps"]
        assert (aps["content-state"]["version"], aps["content-state"]["phase"]) == (7, "live")
    assert aps["attributes"]["matchId"] == "m1"
    assert "alert" in aps


@given(st.text(max_size=200), st.text(max_size=200))
def test_a_collapse_id_is_a_header_of_64_bytes_at_most(match_id: str, team_id: str) -> None:
    deliveries = collapse_id(match_id, team_id)

    assert deliveries.isascii()
    assert deliveries.isprintable()
    assert 1 <= len(deliveries) <= 64
