"""Devices for push notifications through the API, on the real engine (DEV-1 … DEV-4)."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from aiohttp import web

from datastore.database import Database
from datastore.dynamodb.client import Client
from datastore.errors import NotFound
from datastore.keyspace.matches import devices as keys
from datastore.keyspace.matches.devices import DEVICES, UPDATE_PUSH_TO_START
from datastore.matches.devices import Devices, Platform
from datastore.model.access_patterns import AccessPattern, Who
from datastore.model.identity import Role
from datastore.model.timestamps import to_seconds
from datastore.session.metering import Deadline
from datastore.session.store import Store
from tests.support.fault_proxy import Proxy, Seen, forward
from tests.support.served import NOON, Answer, Served

ALL = AccessPattern("T-1", "", DEVICES, ("Query",), Who.INTERNAL, key="userId = :partition", consistent=True)
PHONE, NEW_PHONE, START = "a1" * 32, "b2" * 32, "c3" * 80
FIELDS = "userId deviceToken platform apnsToken pushToStartToken osVersion appVersion registeredAt expiresAt"
REGISTER = f"""mutation ($device: ID!, $input: RegisterDeviceInput!) {{
  registerDevice(deviceToken: $device, input: $input) {{ {FIELDS} }}
}}"""
DEVICE = f"query ($user: ID!) {{ device(userId: $user) {{ {FIELDS} }} }}"
UPDATE = f"""mutation ($device: ID!, $token: String!) {{
  updateDevice(deviceToken: $device, input: {{pushToStartToken: $token}}) {{ {FIELDS} }}
}}"""
DELETE = f"mutation ($device: ID!) {{ deleteDevice(deviceToken: $device) {{ {FIELDS} }} }}"


async def register_device(served: Served, token: str = PHONE, user: str = "ada", **more: Any) -> Answer:
    given = {"platform": "IOS", "osVersion": "26.1", "appVersion": "3.0", **more}
    return await served.ask(REGISTER, {"device": token, "input": given}, user=user)


async def device(served: Served, of: str = "ada", user: str = "ada", role: Role = Role.USER) -> Any:
    answer = await served.ask(DEVICE, {"user": of}, user=user, role=role)
    assert answer.errors is None
    return answer.data["device"]


async def set_push_to_start_token(served: Served, token: str = START, of: str = PHONE, user: str = "ada") -> Answer:
    return await served.ask(UPDATE, {"device": of, "token": token}, user=user)


async def device_tokens(store: Store, user: str = "ada") -> list[str]:
    return [item["deviceToken"] async for item in store.query_all(ALL, {"partition": user})]


async def put_device(store: Store, token: str, **more: Any) -> None:
    """Store a device directly."""
    item = {"userId": "ada", "deviceToken": token, "platform": "iOS", "ttl": to_seconds(NOON) + 10, **more}
    await store.write_all(DEVICES, puts=[item])


# DEV-2: register


async def test_a_device_is_registered_for_ninety_days(served: Served) -> None:
    answer = await register_device(served)

    assert answer.errors is None
    assert answer.data["registerDevice"] == {
        "userId": "ada",
        "deviceToken": PHONE,
        "platform": "IOS",
        "apnsToken": PHONE,
        "pushToStartToken": None,
        "osVersion": "26.1",
        "appVersion": "3.0",
        "registeredAt": "2026-06-25T12:00:00.000Z",
        "expiresAt": "2026-09-23T12:00:00.000Z",
    }
    assert answer.made == ["Query cricket-devices", "UpdateItem cricket-devices"]
    assert await device(served) == answer.data["registerDevice"]


async def test_a_repeated_registration_renews_the_device_and_keeps_its_push_to_start_token(served: Served) -> None:
    await register_device(served)
    await set_push_to_start_token(served)
    served.clock.forward(days=80)

    answer = await register_device(served, osVersion="26.2", apnsToken="d4" * 32)

    assert answer.data["registerDevice"] == {
        "userId": "ada",
        "deviceToken": PHONE,
        "platform": "IOS",
        "apnsToken": "d4" * 32,
        "pushToStartToken": START,
        "osVersion": "26.2",
        "appVersion": "3.0",
        "registeredAt": "2026-09-13T12:00:00.000Z",
        "expiresAt": "2026-12-12T12:00:00.000Z",
    }


async def test_a_new_device_replaces_all_others(served: Served) -> None:
    await put_device(served.store(), "ee" * 32)
    await put_device(served.store(), "ff" * 32, registeredAt="2026-01-01T00:00:00.000Z", ttl=1)
    await register_device(served, user="grace")
    served.clock.forward(seconds=1)

    # Its token sorts before the others, so the result does not depend on the order of the tokens.
    answer = await register_device(served, "00" * 32)

    assert answer.made == [*["DeleteItem cricket-devices"] * 2, "Query cricket-devices", "UpdateItem cricket-devices"]
    assert await device_tokens(served.store()) == ["00" * 32]
    assert await device_tokens(served.store(), "grace") == [PHONE]


async def test_tokens_are_case_insensitive(served: Served) -> None:
    await register_device(served, PHONE.upper())

    assert await device_tokens(served.store()) == [PHONE]
    assert (await set_push_to_start_token(served, of=PHONE.upper())).errors is None


@pytest.mark.parametrize("at_once", [2, 6])
async def test_concurrent_registrations_leave_one_device(served: Served, at_once: int) -> None:
    for number in range(5):
        new = [f"{number}{which}" * 16 for which in range(at_once)]
        answers = await asyncio.gather(*[register_device(served, token) for token in new])

        assert [answer.errors for answer in answers] == [None] * at_once
        (left,) = await device_tokens(served.store())
        assert left in new
        assert (await device(served))["deviceToken"] == left
        served.clock.forward(seconds=1)


async def test_registrations_with_slow_and_fast_clocks_leave_one_device(served: Served) -> None:
    async def once(number: int) -> None:
        now = NOON + timedelta(milliseconds=(7 * number) % 5)
        await Devices(served.store(), now).register(
            "ada", f"token-{number}", platform=Platform.IOS, apns_token="t", os_version="1", app_version="1"
        )

    for first in range(0, 60, 6):
        await asyncio.gather(*[once(number) for number in range(first, first + 6)])
        assert len(await device_tokens(served.store())) == 1


async def test_a_device_registered_again_is_not_deleted_by_an_older_version(
    proxy: Proxy, client: Client, database: Database
) -> None:
    async def register_at(client: Client, token: str, seconds: int) -> None:
        store = Store(client, prefix=database.prefix, deadline=Deadline(10), token=lambda: "", now=lambda: NOON)
        await Devices(store, NOON + timedelta(seconds=seconds)).register(
            "ada", token, platform=Platform.IOS, apns_token=token, os_version="1", app_version="1"
        )

    async def meanwhile(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        """Register the old phone again, just after the registration of the new one has read it."""
        answer = await forward(proxy, seen)
        await register_at(database.client, PHONE, 2)
        return answer

    await register_at(database.client, PHONE, 0)
    proxy.faults.extend([forward, meanwhile])

    await register_at(client, NEW_PHONE, 1)

    assert proxy.operations() == ["UpdateItem", "Query", "DeleteItem"]
    store = Store(database.client, prefix=database.prefix, deadline=Deadline(10), token=lambda: "", now=lambda: NOON)
    assert await device_tokens(store) == [PHONE]


# DEV-1: the device of a user


async def test_a_user_without_a_device_has_none(served: Served) -> None:
    answer = await served.ask(DEVICE, {"user": "ada"}, user="ada")

    assert (answer.data, answer.errors) == ({"device": None}, None)
    assert answer.made == ["Query cricket-devices"]
    assert answer.calls[0].request["Limit"] == 1


async def test_a_device_is_visible_to_its_owner_and_its_tokens_only_to_the_system(served: Served) -> None:
    await register_device(served)
    await set_push_to_start_token(served)

    own = await device(served)
    assert (own["deviceToken"], own["apnsToken"], own["pushToStartToken"]) == (PHONE, PHONE, START)
    assert await device(served, user="poller", role=Role.SYSTEM) == own
    hidden = {"deviceToken": None, "apnsToken": None, "pushToStartToken": None}
    assert await device(served, user="root", role=Role.ADMIN) == own | hidden
    assert (await served.ask(DEVICE, {"user": "ada"}, user="grace")).codes == ["FORBIDDEN"]
    assert (await served.ask(DEVICE, {"user": "ada"})).codes == ["UNAUTHENTICATED"]


async def test_me_includes_the_device(served: Served) -> None:
    await register_device(served)

    answer = await served.ask("{ me { device { deviceToken } } }", user="ada")

    assert answer.data == {"me": {"device": {"deviceToken": PHONE}}}
    assert answer.made == ["Query cricket-devices"]
    assert (await served.ask("{ me { device { deviceToken } } }", user="grace")).data == {"me": {"device": None}}


async def test_a_device_expires_at_its_second(served: Served) -> None:
    await register_device(served)

    served.clock.now = NOON + timedelta(days=90, milliseconds=-1)
    assert await device(served) is not None
    served.clock.now = NOON + timedelta(days=90)
    assert await device(served) is None
    assert (await set_push_to_start_token(served)).codes == ["NOT_FOUND"]
    assert (await served.ask(DELETE, {"device": PHONE}, user="ada")).data == {"deleteDevice": None}


async def test_an_expired_device_does_not_hide_the_next_one(served: Served) -> None:
    for number in range(3):
        await put_device(served.store(), f"{number:064}", ttl=to_seconds(NOON))
    await put_device(served.store(), PHONE)

    assert (await device(served))["deviceToken"] == PHONE


# DEV-3: the push-to-start token


async def test_an_unchanged_push_to_start_token_is_written_once(served: Served) -> None:
    await register_device(served)

    first = await set_push_to_start_token(served)
    again = await set_push_to_start_token(served)

    assert first.data["updateDevice"]["pushToStartToken"] == START
    assert first.made == ["GetItem cricket-devices", "UpdateItem cricket-devices"]
    assert first.calls[0].request["ConsistentRead"] is True
    assert (again.data, again.made) == (first.data, ["GetItem cricket-devices"])
    assert (await device(served))["pushToStartToken"] == START


async def test_the_device_of_another_user_accepts_no_token(served: Served) -> None:
    await register_device(served)

    assert (await set_push_to_start_token(served, user="grace")).codes == ["NOT_FOUND"]
    assert (await set_push_to_start_token(served, of=NEW_PHONE)).codes == ["NOT_FOUND"]

    assert await device_tokens(served.store(), "grace") == []
    assert await device_tokens(served.store()) == [PHONE]
    assert (await device(served))["pushToStartToken"] is None


async def test_a_token_that_arrives_during_the_deletion_creates_no_device(served: Served) -> None:
    await register_device(served)
    slow = served.store()
    await slow.get(UPDATE_PUSH_TO_START, keys.device("ada", PHONE))  # the request caches it
    await served.ask(DELETE, {"device": PHONE}, user="ada")

    with pytest.raises(NotFound):
        await Devices(slow, NOON).update_push_to_start_token("ada", PHONE, START)

    assert [call.operation for call in slow.meter.calls] == ["GetItem", "UpdateItem"]
    assert await device_tokens(served.store()) == []


# DEV-4: delete


async def test_deleting_returns_the_device_and_then_null(served: Served) -> None:
    await register_device(served)
    before = await device(served)

    others = await served.ask(DELETE, {"device": PHONE}, user="grace")
    first = await served.ask(DELETE, {"device": PHONE}, user="ada")
    second = await served.ask(DELETE, {"device": PHONE}, user="ada")

    assert others.data == {"deleteDevice": None}
    assert (first.data, first.made) == ({"deleteDevice": before}, ["DeleteItem cricket-devices"])
    assert (second.data, second.errors) == ({"deleteDevice": None}, None)
    assert await device(served) is None


# Refused input


@pytest.mark.parametrize("bad", ["", "a1" * 15 + "a", "a1" * 101, "g1" * 32, f" {PHONE}", f"{PHONE}\n", "１" * 64])
async def test_an_invalid_token_is_refused_and_not_repeated(served: Served, bad: str) -> None:
    await register_device(served)
    refused = {
        "deviceToken": [
            await register_device(served, bad),
            await set_push_to_start_token(served, of=bad),
            await served.ask(DELETE, {"device": bad}, user="ada"),
        ],
        "apnsToken": [await register_device(served, apnsToken=bad)],
        "pushToStartToken": [await set_push_to_start_token(served, bad)],
    }

    for field, answers in refused.items():
        for answer in answers:
            assert answer.errors is not None
            assert answer.errors[0]["extensions"] == {"code": "BAD_USER_INPUT", "field": field}
            assert answer.errors[0]["message"] == f"`{field}` must have between 32 and 200 hexadecimal digits."
            assert answer.calls == []
    assert await device_tokens(served.store()) == [PHONE]


@pytest.mark.parametrize("field", ["osVersion", "appVersion"])
@pytest.mark.parametrize("value", ["", " ", "9" * 41])
async def test_versions_have_between_1_and_40_characters(served: Served, field: str, value: str) -> None:
    answer = await register_device(served, **{field: value})

    assert answer.codes == ["BAD_USER_INPUT"]
    assert await device_tokens(served.store()) == []


async def test_a_platform_is_one_of_a_few(served: Served) -> None:
    answer = await register_device(served, platform="ANDROID")

    assert answer.errors is not None
    assert await device_tokens(served.store()) == []


async def test_registering_requires_a_signed_in_user(served: Served) -> None:
    given = {"platform": "IOS", "osVersion": "26.1", "appVersion": "3.0"}
    for query, variables in (
        (REGISTER, {"device": PHONE, "input": given}),
        (UPDATE, {"device": PHONE, "token": START}),
        (DELETE, {"device": PHONE}),
    ):
        answer = await served.ask(query, variables)
        assert answer.codes == ["UNAUTHENTICATED"]
        assert answer.calls == []


async def test_tokens_stay_out_of_logs(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "datastore")
    await register_device(served)
    await set_push_to_start_token(served)
    await put_device(served.store(), NEW_PHONE, platform="toaster")
    await served.ask(DELETE, {"device": PHONE}, user="ada")

    damaged = await served.ask(DEVICE, {"user": "ada"}, user="ada")

    assert damaged.codes == ["INTERNAL"]
    assert "cannot be read" in caplog.text
    own = [record.getMessage() for record in caplog.records if not record.name.startswith(("aiohttp", "asyncio"))]
    assert not [text for text in own if PHONE in text or NEW_PHONE in text or START in text]


async def test_a_printed_device_shows_no_token(served: Served) -> None:
    device = await Devices(served.store(), NOON).register(
        "ada", PHONE, platform=Platform.WATCHOS, apns_token=NEW_PHONE, os_version="26.1", app_version="3.0"
    )

    assert "WATCHOS" in repr(device)
    assert PHONE not in repr(device)
    assert NEW_PHONE not in repr(device)
