"""Pushes to APNs: over real HTTP/2, to a server that behaves as badly as it is told."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from email.utils import format_datetime
from typing import Any

import jwt
import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from msgspec.structs import replace

from datastore.matches.cricket import CricketEvent, CricketEventKind, MatchPhase
from datastore.matches.display import DisplayBatter, DisplayBowler, DisplaySide, DisplayState
from pipelines.matches.push.apns import ApnsDelivery, ApnsLimits
from pipelines.matches.push.apns_credentials import ApnsCredentials, CredentialsError
from pipelines.matches.push.apns_payload import collapse_id, content_state, end, start, update
from pipelines.matches.push.push_delivery import LoggedDelivery, Push, PushOutcome, Sent
from tests.support.apns import KEY, LIMITS, PEM, credentials
from tests.support.apns_server import SERVING, Answer, ApnsServer, Fault, Request
from tests.support.served import NOON, Clock
from tests.support.store_engines import ROOT
from tests.support.time_ahead import jump

PUBLIC = KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
TOKEN = "a1" * 32


def display(**changes: Any) -> DisplayState:
    state = DisplayState(
        match_id="m1",
        team_id="1",
        version=7,
        phase=MatchPhase.LIVE,
        status="2nd Innings",
        headline="MUM 120/3 (15.4)",
        situation="Mumbai need 34 from 26 balls",
        team=DisplaySide("1", "Mumbai", "MUM", score="120/3", overs="15.4", batting=True),
        opponent=DisplaySide("2", "Chennai", "CHE", score="153/6", overs="20"),
        start_time=NOON,
        updated_at=NOON,
        batters=(DisplayBatter("Rohit Sharma", 55, 38, on_strike=True), DisplayBatter("Suryakumar Yadav", 21, 14)),
        bowler=DisplayBowler("Ravindra Jadeja", "3.4", 0, 24, 2),
        recent="1 4 W . 6 2",
        target=154,
        required_runs=34,
        balls_left=26,
    )
    return replace(state, **changes)


def event(kind: CricketEventKind, text: str = "Out!") -> CricketEvent:
    return CricketEvent(f"m1:{kind}:{text}", kind, text)


UPDATE = update(display(), NOON)


@pytest.fixture
async def server() -> AsyncIterator[ApnsServer]:
    async with ApnsServer() as server:
        yield server


@pytest.fixture
async def make(server: ApnsServer, clock: Clock) -> AsyncIterator[Callable[..., ApnsDelivery]]:
    made: list[ApnsDelivery] = []

    def make(limits: ApnsLimits = LIMITS) -> ApnsDelivery:
        made.append(ApnsDelivery(credentials(server), clock, limits=limits, verify=server.trust))
        return made[-1]

    yield make
    for delivery in made:
        await delivery.aclose()


@pytest.fixture
def delivery(make: Callable[..., ApnsDelivery]) -> ApnsDelivery:
    return make()


async def pushes(count: int, settle: Callable[[Sent], Any] | None = None) -> AsyncIterator[Push]:
    for number in range(count):
        yield Push(f"{number:064x}", UPDATE, settle)


def first_then(*answers: Answer | Fault) -> Callable[[Request], Answer | Fault]:
    """These answers, one by one, and then delivered. With the last that hangs the time for an answer is over."""
    rest = iter(answers)
    hanging = answers.count(Fault.HANG)

    def answer(_: Request) -> Answer | Fault:
        nonlocal hanging
        given = next(rest, Answer())
        if given is Fault.HANG:
            hanging -= 1
            if not hanging:
                jump(LIMITS.answer_seconds)
        return given

    return answer


# What is sent


async def test_a_push_is_sent_as_apns_wants_it(server: ApnsServer, delivery: ApnsDelivery) -> None:
    wicket = update(display(), NOON, [event(CricketEventKind.WICKET, "Kishan c Dhoni b Jadeja 4")])

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
def test_what_matters_goes_at_once_and_rings(kinds: list[CricketEventKind], priority: int, alert: str | None) -> None:
    notification = update(display(), NOON, [event(kind, kind.value) for kind in kinds])

    told = orjson.loads(notification.body)["aps"].get("alert", {}).get("body")
    assert (notification.priority, told) == (priority, alert)
    # What rings must not be replaced on its way.
    assert (notification.collapse_id is None) == (alert is not None)


def test_an_end_says_when_it_leaves_the_screen_and_a_start_what_it_is_about() -> None:
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


def test_every_key_of_the_content_state_is_there_and_documented() -> None:
    page = (ROOT / "docs" / "live-activities.md").read_text()
    bare = display(batters=(), bowler=None, recent="", target=None, required_runs=None, balls_left=None)

    full, empty = content_state(display()), content_state(bare)

    assert full.keys() == empty.keys()
    assert [key for key in [*full, *full["team"], *full["batters"][0]] if f"`{key}`" not in page] == []
    assert [kind for kind in MatchPhase if f"`{kind.value}`" not in page] == []


# What fits

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
    notification = update(display(**texts), NOON, [event(CricketEventKind.WICKET)])

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
    events = [event(CricketEventKind.WICKET, text)]

    for notification in (update(state, NOON, events), end(state, NOON, events), start(state, NOON)):
        assert len(notification.body) <= 4096
        aps = orjson.loads(notification.body)["aps"]
        assert (aps["content-state"]["version"], aps["content-state"]["phase"]) == (7, "live")
    assert aps["attributes"]["matchId"] == "m1"
    assert "alert" in aps


@given(st.text(max_size=200), st.text(max_size=200))
def test_a_collapse_id_is_a_header_of_64_bytes_at_most(match_id: str, team_id: str) -> None:
    made = collapse_id(match_id, team_id)

    assert made.isascii()
    assert made.isprintable()
    assert 1 <= len(made) <= 64


# Who we are


async def test_the_provider_token_is_ours_and_is_renewed_after_50_minutes(
    server: ApnsServer, delivery: ApnsDelivery, clock: Clock
) -> None:
    await delivery.send(TOKEN, UPDATE)
    clock.forward(minutes=49)
    await delivery.send(TOKEN, UPDATE)
    clock.forward(minutes=1)
    await delivery.send(TOKEN, UPDATE)

    tokens = [request.bearer for request in server.requests]
    assert tokens[0] == tokens[1] != tokens[2]
    for token, issued in ((tokens[0], NOON), (tokens[2], NOON + timedelta(minutes=50))):
        claims = jwt.decode(token, PUBLIC, algorithms=["ES256"], options={"verify_iat": False})
        assert claims == {"iss": "TEAM123456", "iat": int(issued.timestamp())}
        assert jwt.get_unverified_header(token) == {"alg": "ES256", "kid": "ABCDE12345", "typ": "JWT"}


async def test_an_expired_provider_token_is_renewed_once_however_many_sends_hear_of_it(
    server: ApnsServer, delivery: ApnsDelivery, clock: Clock
) -> None:
    await delivery.send(TOKEN, UPDATE)
    old = server.requests[0].bearer
    clock.forward(minutes=30)
    server.answer = lambda request: Answer(403, "ExpiredProviderToken") if request.bearer == old else Answer()

    summary = await delivery.send_all(pushes(50))

    assert summary.outcomes == {PushOutcome.DELIVERED: 50}
    assert len({request.bearer for request in server.requests} - {old}) == 1


async def test_refused_credentials_are_told_once_and_nothing_more_is_sent_for_a_while(
    server: ApnsServer, delivery: ApnsDelivery, caplog: pytest.LogCaptureFixture
) -> None:
    server.answer = lambda _: Answer(403, "InvalidProviderToken")

    first = await delivery.send(TOKEN, UPDATE)
    summary = await delivery.send_all(pushes(500))

    assert first == Sent(PushOutcome.FAILED, "InvalidProviderToken")
    assert summary.reasons == {"InvalidProviderToken": 500}
    assert len(server.requests) == 1
    assert [record.levelname for record in caplog.records] == ["ERROR"]


RSA = rsa.generate_private_key(65537, 2048).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"key": "no key"}, "key"),
        ({"key": RSA}, "P-256"),
        ({"key_id": "short"}, "key_id"),
        ({"team_id": "lowercase1"}, "team_id"),
        ({"bundle_id": "com example"}, "bundle_id"),
        ({"bundle_id": ""}, "bundle_id"),
        ({"url": "http://api.push.apple.com"}, "url"),
    ],
)
def test_credentials_that_cannot_be_right_are_refused_by_name(wrong: dict[str, str], named: str) -> None:
    right = {"key": PEM, "key_id": "ABCDE12345", "team_id": "TEAM123456", "bundle_id": "com.example.cricket"}

    with pytest.raises(CredentialsError, match=named) as refusal:
        ApnsCredentials(**right | wrong)

    assert "PRIVATE" not in str(refusal.value)
    assert PEM[40:80] not in repr(ApnsCredentials(**right))


# What APNs answers


@pytest.mark.parametrize(
    ("status", "reason", "outcome"),
    [
        (410, "Unregistered", PushOutcome.REJECTED),
        (410, "ExpiredToken", PushOutcome.REJECTED),
        (400, "BadDeviceToken", PushOutcome.REJECTED),
        (400, "DeviceTokenNotForTopic", PushOutcome.REJECTED),
        (400, "BadTopic", PushOutcome.FAILED),
        (413, "PayloadTooLarge", PushOutcome.FAILED),
        (404, None, PushOutcome.FAILED),
    ],
)
async def test_an_answer_that_will_not_change_is_not_asked_for_again(
    server: ApnsServer, delivery: ApnsDelivery, status: int, reason: str | None, outcome: PushOutcome
) -> None:
    server.answer = lambda _: Answer(status, reason)

    sent = await delivery.send(TOKEN, UPDATE)

    assert sent == Sent(outcome, reason or f"Status{status}")
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "trouble",
    [
        [Answer(500, "InternalServerError")],
        [Answer(503, "ServiceUnavailable"), Answer(503, "Shutdown")],
        [Fault.HANG],
        [Fault.RESET],
        [Fault.GOAWAY],
        [Fault.CLOSE],
        [Fault.CLOSE, Answer(429, "TooManyRequests"), Fault.GOAWAY],
    ],
    ids=str,
)
async def test_what_may_pass_is_tried_again(
    server: ApnsServer, delivery: ApnsDelivery, trouble: list[Answer | Fault]
) -> None:
    server.answer = first_then(*trouble)

    sent = await delivery.send(TOKEN, UPDATE)

    assert sent.outcome is PushOutcome.DELIVERED
    # What a GOAWAY says was not looked at httpx sends again by itself.
    assert len(trouble) - trouble[1:].count(Fault.GOAWAY) <= sent.retries <= len(trouble)


async def test_it_is_not_tried_for_ever(server: ApnsServer, delivery: ApnsDelivery) -> None:
    server.answer = lambda _: Answer(503, "ServiceUnavailable")

    sent = await delivery.send(TOKEN, UPDATE)

    assert sent == Sent(PushOutcome.FAILED, "ServiceUnavailable", 3)
    assert len(server.requests) == 4


@pytest.mark.parametrize("form", ["seconds", "date"])
async def test_retry_after_is_waited_for(server: ApnsServer, delivery: ApnsDelivery, form: str) -> None:
    wait = "1" if form == "seconds" else format_datetime(NOON + timedelta(seconds=1), usegmt=True)
    server.answer = first_then(Answer(429, "TooManyRequests", {"retry-after": wait}))
    began = asyncio.get_running_loop().time()

    sent = await delivery.send(TOKEN, UPDATE)

    assert sent == Sent(PushOutcome.DELIVERED, None, 1)
    assert asyncio.get_running_loop().time() - began >= 1


async def test_a_wait_that_is_longer_than_a_push_lives_is_not_waited_for(
    server: ApnsServer, delivery: ApnsDelivery
) -> None:
    server.answer = lambda _: Answer(429, "TooManyRequests", {"retry-after": "60"})

    sent = await delivery.send(TOKEN, UPDATE)

    assert sent == Sent(PushOutcome.FAILED, "TooManyRequests", 0)


async def test_without_a_server_it_fails_and_recovers_with_it(clock: Clock) -> None:
    async with ApnsServer() as server:
        gone = credentials(server)
    delivery = ApnsDelivery(gone, clock, limits=LIMITS)

    sent = await delivery.send(TOKEN, UPDATE)

    assert sent == Sent(PushOutcome.FAILED, "NoAnswer", 3)
    await delivery.aclose()


# Many


async def test_streams_that_hang_do_not_use_a_connection_up(server: ApnsServer, delivery: ApnsDelivery) -> None:
    server.answer = first_then(*[Fault.HANG] * LIMITS.concurrent)

    summary = await delivery.send_all(pushes(130))

    assert summary.outcomes == {PushOutcome.DELIVERED: 130}
    assert summary.retries >= 100
    # The one that hung, and another: not one for each.
    assert server.connections == 2


async def test_a_thousand_are_sent_over_one_connection_a_hundred_at_a_time(
    server: ApnsServer, make: Callable[..., ApnsDelivery]
) -> None:
    taken = 0
    furthest = 0

    async def counted() -> AsyncIterator[Push]:
        nonlocal taken, furthest
        async for push in pushes(1000):
            taken += 1
            furthest = max(furthest, taken - len(server.requests))
            yield push

    summary = await make(ApnsLimits()).send_all(counted())

    assert summary.outcomes == {PushOutcome.DELIVERED: 1000}
    assert server.delivered == {f"{number:064x}": 1 for number in range(1000)}
    assert 10 < server.peak <= 100
    # No more is taken from the iterator than is being sent.
    assert furthest <= 101
    assert server.connections == 1


async def test_two_batches_share_the_places(server: ApnsServer, make: Callable[..., ApnsDelivery]) -> None:
    delivery = make(ApnsLimits(concurrent=7))
    server.answer = lambda _: Answer(delay=0.005)

    await asyncio.gather(*[delivery.send_all(pushes(60)) for _ in range(3)])

    assert len(server.requests) == 180
    assert server.peak == 7


async def test_a_server_that_takes_one_stream_at_a_time_is_served(server: ApnsServer, delivery: ApnsDelivery) -> None:
    server.most_streams = 1

    summary = await delivery.send_all(pushes(40))

    assert summary.outcomes == {PushOutcome.DELIVERED: 40}
    assert server.peak == 1


async def test_a_connection_that_is_closed_now_and_then_costs_retries_and_no_pushes(
    server: ApnsServer, make: Callable[..., ApnsDelivery]
) -> None:
    answered = 0

    def sometimes(_: Request) -> Answer | Fault:
        nonlocal answered
        answered += 1
        return {100: Fault.GOAWAY, 200: Fault.CLOSE, 300: Fault.RESET}.get(answered, Answer())

    server.answer = sometimes
    limits = ApnsLimits(answer_seconds=2, backoff=LIMITS.backoff)

    summary = await make(limits).send_all(pushes(400))

    assert summary.outcomes == {PushOutcome.DELIVERED: 400}
    assert summary.retries >= 1
    assert set(server.delivered) == {f"{number:064x}" for number in range(400)}


async def test_each_push_tells_how_it_ended_and_one_listeners_trouble_stops_nothing(
    server: ApnsServer, delivery: ApnsDelivery, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[Sent] = []
    server.answer = lambda request: Answer(410, "Unregistered") if request.token.endswith("3") else Answer()

    async def settle(sent: Sent) -> None:
        heard.append(sent)
        if sent.outcome is PushOutcome.REJECTED:
            raise ZeroDivisionError

    summary = await delivery.send_all(pushes(8, settle))

    assert summary.outcomes == {PushOutcome.DELIVERED: 7, PushOutcome.REJECTED: 1}
    assert len(heard) == 8
    assert "ZeroDivisionError" in caplog.text
    assert str(summary) == "7 delivered, 1 rejected, 1 × Unregistered"


async def test_if_reading_fails_what_was_read_is_sent(server: ApnsServer, delivery: ApnsDelivery) -> None:
    server.answer = lambda _: Answer(delay=0.05)

    async def breaks_off() -> AsyncIterator[Push]:
        async for push in pushes(5):
            yield push
        raise LookupError

    with pytest.raises(LookupError):
        await delivery.send_all(breaks_off())

    assert len(server.requests) == 5
    assert server.open == 0


async def test_a_batch_can_be_cancelled(server: ApnsServer, make: Callable[..., ApnsDelivery]) -> None:
    delivery = make(ApnsLimits(concurrent=3))
    server.answer = lambda _: Fault.HANG
    batch = asyncio.create_task(delivery.send_all(pushes(10)))
    async with asyncio.timeout(5):
        while len(server.requests) < 3:  # noqa: ASYNC110 - it is over the wire
            await asyncio.sleep(0.005)

    batch.cancel()
    with pytest.raises(asyncio.CancelledError):
        await batch

    server.answer = lambda _: Answer()
    assert (await delivery.send_all(pushes(10))).outcomes == {PushOutcome.DELIVERED: 10}


# What logs show


async def test_no_token_is_ever_logged(
    server: ApnsServer, delivery: ApnsDelivery, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    caplog.handler.addFilter(lambda _: not SERVING.get())
    server.answer = first_then(Answer(410, "Unregistered"), Fault.HANG, Fault.CLOSE)
    for number in range(3):
        await delivery.send(f"{TOKEN}{number}", UPDATE)
    await delivery.send_all(pushes(3))

    logged = caplog.text + "".join(str(record.__dict__) for record in caplog.records)
    assert TOKEN not in logged
    assert server.requests[0].bearer not in logged
    assert f"{1:064x}" not in logged
    assert repr(Push(TOKEN, UPDATE)).count(TOKEN) == 0


async def test_without_credentials_what_would_be_sent_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    heard: list[Sent] = []

    async def settle(sent: Sent) -> None:
        heard.append(sent)

    summary = await LoggedDelivery().send_all(pushes(1000, settle))

    assert summary.outcomes == {PushOutcome.LOGGED: 1000}
    assert len(heard) == 1000
    (record,) = caplog.records
    assert "Would send to 1000 devices" in record.getMessage()
    assert "MUM 120/3 (15.4)" in record.getMessage()
    assert f"{1:064x}" not in record.getMessage()
