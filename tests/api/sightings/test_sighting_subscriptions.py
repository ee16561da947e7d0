"""Live sightings over WebSockets, fed by the table's own stream (BLIP-S1, BLIP-S2)."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from datastore.keyspace.sightings import BLIP
from datastore.model.identity import Role
from datastore.sightings.reporters import Reporters, UserProfile
from server.settings import Settings
from tests.support.served import Served
from tests.support.sighting_subscriptions import foreign_sighting, raw_put
from tests.support.sightings import confirm_sighting, report_sighting
from tests.support.time_jumps import jump
from tests.support.until import until

LISTEN = "subscription { sightingReported%s { sightingId area category confidence reporter { reportTotal } } }"


async def test_a_report_reaches_subscribers_by_area_and_category(served: Served) -> None:
    everywhere = await served.listen(LISTEN % "")
    cats = await served.listen(LISTEN % '(category: "Cats")')
    harbor = await served.listen(LISTEN % '(area: "Harbor", category: "Sneakers")')
    await served.settle(BLIP, 3)

    first = await report_sighting(served, area="Downtown", category="Cats", user="ada")
    second = await report_sighting(served, area="Harbor", category="Sneakers", user="ada")

    expected = [
        {
            "sightingReported": {
                "sightingId": sighting["sightingId"],
                "area": sighting["area"],
                "category": sighting["category"],
                "confidence": 1.0,
                "reporter": {"reportTotal": 2},
            }
        }
        for sighting in (first, second)
    ]
    assert [(await everywhere.event())["sightingReported"]["sightingId"] for _ in range(2)] == [
        first["sightingId"],
        second["sightingId"],
    ]
    assert (await cats.event())["sightingReported"]["category"] == "Cats"
    assert await harbor.event() == expected[1]


async def test_each_event_uses_fresh_reads(served: Served) -> None:
    listener = await served.listen(LISTEN % "")
    await served.settle(BLIP)

    totals = []
    for _ in range(3):
        await report_sighting(served)
        totals.append((await listener.event())["sightingReported"]["reporter"]["reportTotal"])

    assert totals == [1, 2, 3]


async def test_sightings_of_other_programs_are_delivered_and_damaged_ones_are_skipped(served: Served) -> None:
    listener = await served.listen("subscription { sightingReported { id sightingId description trustTier } }")
    await served.settle(BLIP)

    damaged = foreign_sighting("damaged")
    del damaged["reporterId"]
    await asyncio.to_thread(raw_put, served, damaged)
    await asyncio.to_thread(raw_put, served, foreign_sighting("theirs"))

    event = (await listener.event())["sightingReported"]
    assert event | {"id": ""} == {"id": "", "sightingId": "theirs", "description": "", "trustTier": "BRONZE"}
    node = await served.ask(
        "query ($id: ID!) { node(id: $id) { ... on Sighting { sightingId } } }", {"id": event["id"]}
    )
    assert node.data == {"node": {"sightingId": "theirs"}}


async def test_confirmations_are_not_delivered_as_reports(served: Served) -> None:
    sighting = await report_sighting(served)
    listener = await served.listen(LISTEN % "")
    await served.settle(BLIP)

    await confirm_sighting(served, sighting, "grace")
    later = await report_sighting(served)

    assert (await listener.event())["sightingReported"]["sightingId"] == later["sightingId"]


async def test_alerts_follow_the_current_watches(served: Served) -> None:
    create = 'mutation ($c: String!) { createWatch(input: {area: "Harbor", category: $c}) { watchId } }'
    cats = (await served.ask(create, {"c": "Cats"}, user="ada")).data["createWatch"]["watchId"]
    await served.ask(create, {"c": "Street Art"}, user="eve")
    listener = await served.listen('subscription { watchAlerts(userId: "ada") { area category } }', user="ada")
    await served.settle(BLIP)

    seen = []
    await report_sighting(served, area="Harbor", category="Street Art", user="bob")
    await report_sighting(served, area="Harbor", category="Cats", user="bob")
    seen.append(await listener.event())
    await served.ask(create, {"c": "Sneakers"}, user="ada")
    await served.ask(
        'mutation ($id: ID!) { deleteWatch(area: "Harbor", category: "Cats", watchId: $id) { watchId } }',
        {"id": cats},
        user="ada",
    )
    await report_sighting(served, area="Harbor", category="Cats", user="bob")
    await report_sighting(served, area="Harbor", category="Sneakers", user="bob")
    seen.append(await listener.event())

    assert [event["watchAlerts"]["category"] for event in seen] == ["Cats", "Sneakers"]


class TestWithAShortDeadline:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return replace(settings, deadline_seconds=50)

    @pytest.fixture(autouse=True)
    async def jumping(self) -> None:
        """Let the gateway, which is opened after this, see jumps."""
        jump(0)

    async def test_an_alert_arrives_after_a_long_time_without_events(self, served: Served) -> None:
        create = 'mutation { createWatch(input: {area: "Harbor", category: "Cats"}) { watchId } }'
        await served.ask(create, user="ada")
        listener = await served.listen('subscription { watchAlerts(userId: "ada") { area } }', user="ada")
        await served.settle(BLIP)

        # A read of the stream that waits for its response would exceed its time limit.
        assert served.gateway.services is not None
        pool = served.gateway.services.client._transport._pool
        assert pool is not None
        await until(lambda: not pool._connecting and len(pool._idle) == len(pool._open))
        jump(60)
        await report_sighting(served, area="Harbor", category="Cats", user="bob")

        assert await listener.event() == {"watchAlerts": {"area": "Harbor"}}


async def test_a_damaged_watch_is_skipped(served: Served) -> None:
    create = 'mutation { createWatch(input: {area: "Harbor", category: "Cats"}) { watchId } }'
    listener = await served.listen('subscription { watchAlerts(userId: "ada") { area } }', user="ada")
    await served.settle(BLIP)

    await asyncio.to_thread(raw_put, served, {"PK": "USER#ada", "SK": "WATCH#Harbor#Cats#theirs", "watchId": "theirs"})
    await served.ask(create, user="ada")
    await report_sighting(served, area="Harbor", category="Cats", user="bob")

    assert await listener.event() == {"watchAlerts": {"area": "Harbor"}}


async def test_a_sighting_that_expired_meanwhile_is_not_delivered(served: Served) -> None:
    listener = await served.listen(LISTEN % "")
    await served.settle(BLIP)

    now = int(served.clock.now.timestamp())
    await asyncio.to_thread(raw_put, served, foreign_sighting("expired", expiresAt=now))
    await asyncio.to_thread(raw_put, served, foreign_sighting("alive", expiresAt=now + 1))

    assert (await listener.event())["sightingReported"]["sightingId"] == "alive"


async def test_alerts_are_for_their_user_and_admins(served: Served) -> None:
    alerts = 'subscription { watchAlerts(userId: "ada") { area } }'

    anonymous = await (await served.listen(alerts)).message()
    other = await (await served.listen(alerts, user="eve")).message()
    admin = await served.listen(alerts, user="root", role=Role.ADMIN)

    assert [error["extensions"]["code"] for error in anonymous["payload"]["errors"]] == ["UNAUTHENTICATED"]
    assert [error["extensions"]["code"] for error in other["payload"]["errors"]] == ["FORBIDDEN"]
    await served.settle(BLIP)
    await admin.socket.close()


async def test_an_unknown_area_ends_the_subscription_with_its_error(served: Served) -> None:
    listener = await served.listen(LISTEN % '(area: "Atlantis")')

    refusal, end = await listener.message(), await listener.message()

    assert [error["extensions"] for error in refusal["payload"]["errors"]] == [
        {"code": "BAD_USER_INPUT", "field": "area"}
    ]
    assert end["type"] == "complete"


async def test_the_stream_is_no_longer_read_after_the_last_subscriber_leaves(served: Served) -> None:
    listener = await served.listen(LISTEN % "")
    await served.settle(BLIP)

    await listener.socket.send_json({"id": "1", "type": "complete"})

    services = served.gateway.services
    assert services is not None
    async with asyncio.timeout(50):
        while services.changes.followers(BLIP):  # noqa: ASYNC110 - the condition changes over the network
            await asyncio.sleep(0.01)


async def test_a_stalled_subscriber_is_disconnected_and_the_others_miss_no_event(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = asyncio.Event()
    by_ids = Reporters.by_ids

    async def stalling(reporters: Reporters, user_ids: Sequence[str]) -> list[UserProfile | Exception | None]:
        await released.wait()
        return await by_ids(reporters, user_ids)

    monkeypatch.setattr(Reporters, "by_ids", stalling)
    monkeypatch.setattr("datastore.queues.MAX_EVENTS", 40)
    quick = await served.listen("subscription { sightingReported { sightingId } }")
    stalled = await served.listen("subscription { sightingReported { sightingId reporter { userId } } }")
    latest = await served.listen(
        "subscription { sightingReported(whenSlow: LATEST) { sightingId reporter { userId } } }"
    )
    await served.settle(BLIP, 3)

    names = [f"burst-{number:02}" for number in range(60)]
    for name in names:
        await asyncio.to_thread(raw_put, served, foreign_sighting(name))

    assert [(await quick.event())["sightingReported"]["sightingId"] for _ in names] == names
    closing = await stalled.message()
    released.set()
    assert (closing["type"], closing["payload"][0]["extensions"]["code"]) == ("error", "SLOW_SUBSCRIBER")
    assert [(await latest.event())["sightingReported"]["sightingId"] for _ in range(2)] == [names[0], names[-1]]
