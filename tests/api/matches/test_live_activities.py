"""Live Activities through the API, on the real engine (LA-1 … LA-6)."""

import asyncio
from typing import Any

import pytest

from datastore.keyspace.matches.live_activities import LIVE_ACTIVITIES
from datastore.matches.cricket import Match, MatchPhase
from datastore.matches.fixtures import Fixtures
from datastore.matches.live_activities import LiveActivities, LiveActivityStatus
from datastore.model.access_patterns import AccessPattern, Who
from datastore.model.identity import Role
from datastore.session.store import Store
from tests.support.live_activities import (
    END,
    FIELDS,
    HERE,
    NEW_TOKEN,
    OF_USER,
    REGISTER,
    TOKEN,
    activities,
    end,
    register_session,
)
from tests.support.served import NOON, Answer, Served

ALL = AccessPattern("T-1", "", LIVE_ACTIVITIES, ("Query",), Who.INTERNAL, key="matchId = :partition", consistent=True)

UPDATE = f"""mutation ($match: ID!, $device: ID!, $token: String!) {{
  updateLiveActivity(matchId: $match, deviceId: $device, input: {{updateToken: $token}}) {{ {FIELDS} }}
}}"""

SUSPEND = f"""mutation ($match: ID!, $device: ID!, $user: ID!) {{
  suspendLiveActivity(matchId: $match, deviceId: $device, userId: $user) {{ {FIELDS} }}
}}"""

WRITE = ["UpdateItem live-activities"]

BEGIN = ["GetItem cricket-fixtures", "Query live-activities", *WRITE]


@pytest.fixture(autouse=True)
async def matches(served: Served) -> None:
    matches = [Match(match_id, "L", "IPL", "10", "20", NOON) for match_id in ("m1", "m2")]
    await Fixtures(served.store(), NOON).sync(matches)


async def rotate(served: Served, user: str = "ada", token: str = NEW_TOKEN, **where: str) -> Answer:
    return await served.ask(UPDATE, {**HERE, **where, "token": token}, user=user)


async def suspend(served: Served, of: str = "ada", user: str = "poller", role: Role = Role.SYSTEM) -> Answer:
    return await served.ask(SUSPEND, {**HERE, "user": of}, user=user, role=role)


async def stored_sessions(store: Store, match_id: str = "m1") -> list[dict[str, Any]]:
    return [item async for item in store.query_all(ALL, {"partition": match_id})]


# LA-3: register


async def test_a_new_session_is_active_for_twelve_hours(served: Served) -> None:
    answer = await register_session(served)

    assert answer.errors is None
    assert answer.data["registerLiveActivity"] == {
        "matchId": "m1",
        "userId": "ada",
        "deviceId": "phone",
        "updateToken": TOKEN,
        "status": "ACTIVE",
        "sessionStartedAt": "2026-06-25T12:00:00.000Z",
        "endedAt": None,
        "endReason": None,
        "suspendedAt": None,
        "expiresAt": "2026-06-26T00:00:00.000Z",
    }
    assert answer.made == BEGIN
    assert await activities(served) == [answer.data["registerLiveActivity"]]


async def test_each_device_has_a_session_of_its_own(served: Served) -> None:
    await register_session(served)
    await register_session(served, device="pad", token=NEW_TOKEN)
    await register_session(served, match="m2")
    await register_session(served, user="grace")

    own = await activities(served)

    assert sorted((activity["matchId"], activity["deviceId"]) for activity in own) == [
        ("m1", "pad"),
        ("m1", "phone"),
        ("m2", "phone"),
    ]


async def test_a_new_session_keeps_nothing_of_the_former_one(served: Served) -> None:
    await register_session(served)
    await suspend(served)
    await end(served, reason="tired of it")
    served.clock.forward(hours=3)

    answer = await register_session(served, token=NEW_TOKEN)

    assert answer.data["registerLiveActivity"] == {
        "matchId": "m1",
        "userId": "ada",
        "deviceId": "phone",
        "updateToken": NEW_TOKEN,
        "status": "ACTIVE",
        "sessionStartedAt": "2026-06-25T15:00:00.000Z",
        "endedAt": None,
        "endReason": None,
        "suspendedAt": None,
        "expiresAt": "2026-06-26T03:00:00.000Z",
    }
    assert len(await stored_sessions(served.store())) == 1


async def test_a_device_name_with_a_hash_is_not_the_session_of_another_user(served: Served) -> None:
    await register_session(served, user="ada#phone", device="x")
    await register_session(served, user="ada", device="phone#x")

    assert sorted(item["userId#deviceId"] for item in await stored_sessions(served.store())) == [
        "ada#phone%23x",
        "ada%23phone#x",
    ]
    assert [activity["deviceId"] for activity in await activities(served)] == ["phone#x"]


async def test_the_device_of_a_session_is_that_in_its_key(served: Served) -> None:
    """Otherwise a mutation for the device that the API shows would not find the item of another program."""
    await register_session(served)
    (item,) = await stored_sessions(served.store())
    without = {name: value for name, value in item.items() if name != "deviceId"} | {"userId#deviceId": "ada#tablet"}
    contradicting = item | {"deviceId": "phone", "userId#deviceId": "ada#watch"}
    await served.store().write_all(LIVE_ACTIVITIES, puts=[without, contradicting])

    shown = sorted(activity["deviceId"] for activity in await activities(served))
    ended = [await end(served, device=device) for device in shown]

    assert shown == ["phone", "tablet", "watch"]
    assert [answer.data["endLiveActivity"]["status"] for answer in ended] == ["ENDED"] * 3
    assert {activity["status"] for activity in await activities(served)} == {"ENDED"}


async def test_twenty_concurrent_registrations_are_one_session(served: Served) -> None:
    answers = await asyncio.gather(*[register_session(served, token=f"{number:064}") for number in range(20)])

    assert [answer.errors for answer in answers] == [None] * 20
    assert len(await stored_sessions(served.store())) == 1


async def test_only_an_existing_unfinished_match_has_sessions(served: Served) -> None:
    over = Match("over", "L", "IPL", "10", "20", NOON, status="Finished", phase=MatchPhase.FINISHED)
    put_away = Match("archived", "L", "IPL", "10", "20", NOON)
    fixtures = Fixtures(served.store(), NOON)
    await fixtures.sync([over, put_away])
    await fixtures.archive("archived")

    unknown = await register_session(served, match="m3")
    ended = [await register_session(served, match=match_id) for match_id in ("over", "archived")]

    assert (unknown.codes, unknown.made) == (["NOT_FOUND"], ["GetItem cricket-fixtures"])
    assert [(answer.codes, answer.made) for answer in ended] == [(["CONFLICT"], ["GetItem cricket-fixtures"])] * 2
    assert await activities(served) == []


async def test_a_user_has_sessions_of_a_match_on_at_most_ten_devices(served: Served) -> None:
    for number in range(10):
        assert (await register_session(served, device=f"device-{number}")).errors is None
    await end(served, device="device-0")

    eleventh = await register_session(served, device="pad")

    assert (eleventh.codes, eleventh.made) == (["CONFLICT"], BEGIN[:2])
    assert "on 10 devices" in (eleventh.errors or [])[0]["message"]
    assert len(await stored_sessions(served.store())) == 10
    for allowed in (
        await register_session(served, device="device-3", token=NEW_TOKEN),
        await register_session(served, device="device-0"),
        await register_session(served, match="m2", device="pad"),
        await register_session(served, user="ad", device="pad"),
        await register_session(served, user="ada#device", device="pad"),
    ):
        assert allowed.errors is None
    served.clock.forward(hours=12)
    assert (await register_session(served, device="pad")).errors is None


# LA-4: a new token


async def test_a_new_token_is_stored_and_resumes_a_suspended_session(served: Served) -> None:
    before = (await register_session(served)).data["registerLiveActivity"]
    await suspend(served)
    served.clock.forward(hours=1)

    answer = await rotate(served)

    assert answer.data["updateLiveActivity"] == before | {"updateToken": NEW_TOKEN}
    assert answer.made == WRITE


@pytest.mark.parametrize("why", ["unknown", "another's", "ended", "expired"])
async def test_an_ended_or_foreign_session_accepts_no_token(served: Served, why: str) -> None:
    if why != "unknown":
        await register_session(served)
    if why == "ended":
        await end(served)
    if why == "expired":
        served.clock.forward(hours=12)
    before = await stored_sessions(served.store())

    answer = await rotate(served, user="grace" if why == "another's" else "ada")

    assert answer.codes == ["NOT_FOUND"]
    assert await stored_sessions(served.store()) == before


# LA-5: end


async def test_a_session_is_ended_by_its_user(served: Served) -> None:
    await register_session(served)
    served.clock.forward(minutes=30)

    answer = await end(served)

    ended = answer.data["endLiveActivity"]
    assert (ended["status"], ended["endedAt"], ended["endReason"]) == ("ENDED", "2026-06-25T12:30:00.000Z", "user")
    assert answer.made == WRITE
    assert await activities(served) == [ended]


async def test_an_ended_session_keeps_its_time_and_reason(served: Served) -> None:
    await register_session(served)
    first = await end(served, reason=" match over ")
    served.clock.forward(minutes=30)

    again = await end(served, reason="again")

    assert first.data["endLiveActivity"]["endReason"] == "match over"
    assert again.data == first.data
    assert again.errors is None


async def test_a_session_that_was_restarted_is_not_ended_by_a_late_request(served: Served) -> None:
    text = """mutation ($expected: Int) {
      endLiveActivity(matchId: "m1", deviceId: "phone", input: {expectedVersion: $expected}) { status version }
    }"""

    async def registered_version() -> int:
        await register_session(served)
        sessions = await served.ask('{ liveActivities(userId: "ada") { nodes { version } } }', user="ada")
        return int(sessions.data["liveActivities"]["nodes"][0]["version"])

    version, restarted = await registered_version(), await registered_version()

    late = await served.ask(text, {"expected": version}, user="ada")
    first, again = [await served.ask(text, {"expected": restarted}, user="ada") for _ in range(2)]

    assert late.codes == ["CONFLICT"]
    assert late.errors is not None
    assert late.errors[0]["extensions"]["current"]["status"] == "ACTIVE"
    assert first.data == again.data == {"endLiveActivity": {"status": "ENDED", "version": restarted + 1}}
    assert (late.made, first.made, again.made) == (WRITE, WRITE, WRITE)


async def test_the_system_ends_any_session_and_users_and_admins_their_own(served: Served) -> None:
    await register_session(served)
    for user, role in (("grace", Role.USER), ("root", Role.ADMIN)):
        assert (await end(served, user, role, of="ada")).codes == ["FORBIDDEN"]
        assert (await end(served, user, role)).codes == ["NOT_FOUND"]
    assert [activity["status"] for activity in await activities(served)] == ["ACTIVE"]

    answer = await end(served, "poller", Role.SYSTEM, of="ada")

    assert answer.data["endLiveActivity"]["endReason"] == "system"
    assert answer.data["endLiveActivity"]["updateToken"] == TOKEN


@pytest.mark.parametrize("reason", ["", "  ", "x" * 101])
async def test_a_reason_has_between_1_and_100_characters(served: Served, reason: str) -> None:
    await register_session(served)

    assert (await end(served, reason=reason)).codes == ["BAD_USER_INPUT"]
    assert [activity["status"] for activity in await activities(served)] == ["ACTIVE"]


# LA-6: suspend


async def test_the_system_suspends_a_session_and_records_the_time(served: Served) -> None:
    await register_session(served)
    served.clock.forward(minutes=1)

    first = await suspend(served)
    served.clock.forward(minutes=1)
    again = await suspend(served)

    suspended = first.data["suspendLiveActivity"]
    assert (suspended["status"], suspended["suspendedAt"]) == ("SUSPENDED", "2026-06-25T12:01:00.000Z")
    assert first.made == WRITE
    assert again.data == first.data


async def test_users_and_admins_suspend_nothing(served: Served) -> None:
    await register_session(served)

    for role in (Role.USER, Role.ADMIN):
        assert (await suspend(served, user="ada", role=role)).codes == ["FORBIDDEN"]

    assert [activity["status"] for activity in await activities(served)] == ["ACTIVE"]


@pytest.mark.parametrize("why", ["unknown", "ended", "expired"])
async def test_an_ended_session_is_not_suspended(served: Served, why: str) -> None:
    if why != "unknown":
        await register_session(served)
    if why == "ended":
        await end(served)
    if why == "expired":
        served.clock.forward(hours=12)
    before = await stored_sessions(served.store())

    assert (await suspend(served)).codes == ["NOT_FOUND"]
    assert await stored_sessions(served.store()) == before


async def test_a_rejected_token_suspends_its_session_but_not_one_with_a_newer_token(served: Served) -> None:
    await register_session(served)
    pipeline = LiveActivities(served.store(), NOON)

    await rotate(served)
    assert await pipeline.suspend("m1", "ada", "phone", TOKEN) is None
    assert [activity["status"] for activity in await activities(served)] == ["ACTIVE"]

    suspended = await pipeline.suspend("m1", "ada", "phone", NEW_TOKEN)
    assert suspended is not None
    assert (suspended.status, suspended.suspended_at) == (LiveActivityStatus.SUSPENDED, NOON)
    assert await pipeline.suspend("m1", "nobody", "phone", NEW_TOKEN) is None
    assert len(await stored_sessions(served.store())) == 1


async def test_a_token_rotated_while_the_old_one_is_rejected_stays_active(served: Served) -> None:
    for number in range(10):
        await register_session(served)
        pipeline = LiveActivities(served.store(), NOON)
        await asyncio.gather(pipeline.suspend("m1", "ada", "phone", TOKEN), rotate(served, token=f"{number:064}"))

        (item,) = await stored_sessions(served.store())
        assert (item["status"], item["updateToken"]) == ("active", f"{number:064}")
        assert "suspendedAt" not in item


# Refused input


@pytest.mark.parametrize("bad", ["", "a1" * 15, "a1" * 101, "zz" * 32])
async def test_an_invalid_token_is_refused_and_not_repeated(served: Served, bad: str) -> None:
    await register_session(served)

    for answer in (await register_session(served, token=bad), await rotate(served, token=bad)):
        assert answer.errors is not None
        assert answer.errors[0]["extensions"] == {"code": "BAD_USER_INPUT", "field": "updateToken"}
        assert answer.errors[0]["message"] == "`updateToken` must have between 32 and 200 hexadecimal digits."
        assert answer.calls == []
    assert [activity["updateToken"] for activity in await activities(served)] == [TOKEN]


@pytest.mark.parametrize("bad", ["", " ", "x" * 101])
@pytest.mark.parametrize("name", ["match", "device"])
async def test_ids_have_between_1_and_100_characters(served: Served, name: str, bad: str) -> None:
    for answer in (
        await register_session(served, **{name: bad}),
        await rotate(served, **{name: bad}),
        await served.ask(END, {**HERE, name: bad}, user="ada"),
        await served.ask(SUSPEND, {**HERE, "user": "ada", name: bad}, user="poller", role=Role.SYSTEM),
    ):
        (error,) = answer.errors or []
        assert error["extensions"] == {"code": "BAD_USER_INPUT", "field": f"{name}Id"}
        assert error["message"] == f"`{name}Id` must have between 1 and 100 characters."
        assert answer.calls == []


@pytest.mark.parametrize("bad", ["", "x" * 257])
async def test_a_user_id_has_between_1_and_256_characters(served: Served, bad: str) -> None:
    for answer in (
        await served.ask(OF_USER, {"user": bad}, user="poller", role=Role.SYSTEM),
        await end(served, "poller", Role.SYSTEM, of=bad),
        await suspend(served, of=bad),
    ):
        (error,) = answer.errors or []
        assert error["extensions"] == {"code": "BAD_USER_INPUT", "field": "userId"}
        assert answer.calls == []


async def test_spaces_around_a_user_id_name_another_user(served: Served) -> None:
    await register_session(served)

    assert (await end(served, " ada", of=" ada")).codes == ["NOT_FOUND"]
    assert (await end(served, "poller", Role.SYSTEM, of="ada ")).codes == ["NOT_FOUND"]
    assert [activity["status"] for activity in await activities(served)] == ["ACTIVE"]


async def test_sessions_require_a_signed_in_user(served: Served) -> None:
    for query, more in ((REGISTER, {"token": TOKEN}), (UPDATE, {"token": TOKEN}), (END, {}), (SUSPEND, {"user": "a"})):
        answer = await served.ask(query, {**HERE, **more})
        assert (answer.codes, answer.calls) == (["UNAUTHENTICATED"], [])
