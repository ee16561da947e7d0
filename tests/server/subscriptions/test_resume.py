"""Subscribers that were cut off resume: without a gap or a repetition, and only with what they may see now."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from datastore.change_streams.replay import signed_resume_ids as resume_ids
from datastore.change_streams.replay.resume_token import UNKNOWN
from datastore.change_streams.replay.signed_resume_ids import ResumeIds, ResumeRequest
from datastore.keyspace.earthquakes import EARTHQUAKES
from datastore.keyspace.feeds.table import FEED
from datastore.matches.cricket_events import CricketEvent, CricketEventKind
from datastore.model.composite_keys import Key
from datastore.model.identity import Role
from datastore.model.timestamps import iso
from server.admission.callers import Caller
from server.http.streams.response_stream import ResponseStreams, StreamLimits
from server.http.streams.sse import ServerSentEvents
from server.operations.outcome import Outcome
from server.subscriptions.event_execution import EventExecutor
from server.subscriptions.group_member import MemberState
from tests.support.command_line import GatewayProcess, serve_process
from tests.support.earthquake_samples import put_raw
from tests.support.feed_items import post_item
from tests.support.home_feeds import feed_entry, source_item
from tests.support.livestreams import announce, iso_after_noon
from tests.support.match_updates import advance, register_at_version_1
from tests.support.notifications import notification_item
from tests.support.resume import CUTS, MATCH, QUAKES, TRANSPORTS, cut_at_random, other, told_all, write_until
from tests.support.resuming_clients import ResumingClient, SocketClient
from tests.support.served import NOON, SECRET, Served
from tests.support.sightings import report_sighting
from tests.support.until import until

__all__ = ["other"]  # fixtures


RECEIVED = 'subscription { notificationReceived(userId: "%s") { notificationId } }'
ARRIVALS = 'subscription { homeFeedUpdated(userId: "ada") { postId } }'


@TRANSPORTS
@pytest.mark.parametrize("processes", [1, 2])
async def test_versions_are_contiguous_however_often_one_is_cut_off(
    served: Served, other: Served, transport: type[ResumingClient], processes: int
) -> None:
    await register_at_version_1(served, "m1")
    over, versions, snapshots, written = asyncio.Event(), list[int](), list[int](), [1]
    client = transport(served.http, MATCH, {})

    def take(payload: Any) -> None:
        if payload.get("begun"):
            return
        assert "resync" not in payload["extensions"], payload
        update = payload["data"]["matchUpdates"]
        versions.append(update["version"])
        snapshots.extend([update["version"]] * update["isSnapshot"])

    async def write(_: int) -> None:
        written[0] = (await advance(served)).version

    writing = asyncio.create_task(write_until(over, write))
    urls = [served.url, other.url][:processes]

    # The writer continues until then, so `has_all` gets the changes that it waits for.
    await cut_at_random(client, urls, lambda: len(versions) > CUTS, take)
    over.set()
    await writing
    async with client.connected(urls[0]) as events, asyncio.timeout(50):
        while versions[-1] < written[0]:
            take(await anext(events))
    first = versions[0]
    assert versions == [*range(first, first + len(versions))]
    assert snapshots == [first]
    assert len(versions) > CUTS


@TRANSPORTS
@pytest.mark.parametrize("processes", [1, 2])
async def test_each_earthquake_arrives_once_however_often_the_client_is_cut_off(
    served: Served, other: Served, transport: type[ResumingClient], processes: int
) -> None:
    over, had = asyncio.Event(), list[str]()
    client = transport(served.http, QUAKES, {})
    async with client.connected(served.url) as events:
        assert await anext(events) == {"begun": True}
        await put_raw(served, "q0")
        had.append((await anext(events))["data"]["earthquakeDetected"]["eventId"])

    def take(payload: Any) -> None:
        if not payload.get("begun"):
            had.append(payload["data"]["earthquakeDetected"]["eventId"])

    writing = asyncio.create_task(write_until(over, lambda number: put_raw(served, f"q{number + 1}")))
    urls = [served.url, other.url][:processes]
    await cut_at_random(client, urls, lambda: True, take)
    over.set()
    last = await writing
    if had[-1] != f"q{last}":
        async with client.connected(urls[-1]) as events, asyncio.timeout(50):
            while had[-1] != f"q{last}":
                take(await anext(events))
    assert had == [f"q{number}" for number in range(last + 1)]
    assert len(had) > CUTS


@TRANSPORTS
async def test_a_place_that_is_not_known_is_one_resync(served: Served, transport: type[ResumingClient]) -> None:
    await register_at_version_1(served, "m1")
    for query, last in ((MATCH, "nobody.0.0~7"), (QUAKES, "nobody.123abc.5")):
        client = transport(served.http, query, {})
        client.last = last
        async with client.connected(served.url) as events:
            received = await anext(events)
            if query is MATCH:
                assert received["extensions"].pop("resync")
                assert received["data"]["matchUpdates"] == {"version": 1, "isSnapshot": True}
                await advance(served)
                received = await anext(events)
                assert received["data"]["matchUpdates"] == {"version": 2, "isSnapshot": False}
            else:
                assert received["data"] is None
                assert [error["extensions"]["code"] for error in received["errors"]] == ["RESYNC"]
                await put_raw(served, "q1")
                received = await anext(events)
                assert received["data"] == {"earthquakeDetected": {"eventId": "q1"}}
            assert received["extensions"].keys() == {"eventId"}


async def test_the_change_to_the_version_that_a_client_has_is_not_repeated(served: Served) -> None:
    """A snapshot may be ahead of its position: its change then follows the position."""
    ids, binding = ResumeIds(SECRET.encode()), b'matchUpdates?{"matchId": "m1"}'
    groups = served.gateway.server.subscriptions._groups
    await register_at_version_1(served, "m1")
    client = SocketClient(served.http, MATCH, {})
    async with client.connected(served.url) as events:
        await anext(events)
        position = ids.open(client.last, binding).token
        await advance(served)
        assert (await anext(events))["data"]["matchUpdates"]["version"] == 2

    await until(lambda: not groups)
    client.last = ids.sealer(binding)(position, "2")
    async with client.connected(served.url) as events:
        await until(lambda: any(not member.is_waiting for group in groups.values() for member in group._members))
        await advance(served)
        assert (await anext(events))["data"]["matchUpdates"] == {"version": 3, "isSnapshot": False}


async def test_the_id_of_another_subscription_leads_to_a_resync(served: Served) -> None:
    """The state is right although the client has mixed up the positions of its subscriptions."""
    client = SocketClient(served.http, QUAKES, {})
    await register_at_version_1(served, "m1")
    await register_at_version_1(served, "m2")
    match = SocketClient(served.http, MATCH, {})
    async with match.connected(served.url) as events:
        await anext(events)
        await advance(served)
        await anext(events)
    assert match.last is not None
    client.last = match.last.partition("~")[0]
    async with client.connected(served.url) as events:
        received = await anext(events)
        assert received["data"] is None
        assert [error["extensions"]["code"] for error in received["errors"]] == ["RESYNC"]
        await put_raw(served, "q1")
        assert (await anext(events))["data"] == {"earthquakeDetected": {"eventId": "q1"}}
    other_match = SocketClient(served.http, MATCH.replace("m1", "m2"), {})
    other_match.last = match.last
    async with other_match.connected(served.url) as events:
        received = await anext(events)
        assert received["extensions"]["resync"] is True
        assert received["data"]["matchUpdates"] == {"version": 1, "isSnapshot": True}


@TRANSPORTS
@pytest.mark.parametrize("last", ["nonsense", "a.b", "A.b.c", "a.b.-1", "a.b.c.d", "a" * 5000])
async def test_an_invalid_id_is_refused_by_name(served: Served, transport: type[ResumingClient], last: str) -> None:
    await register_at_version_1(served, "m1")
    client = transport(served.http, MATCH, {})
    client.last = last
    async with client.connected(served.url) as events:
        received = await anext(events)
    errors = received["payload"] if "payload" in received else received["errors"]
    assert errors[0]["extensions"] == {"code": "BAD_USER_INPUT", "field": "resumeAfter"}


@TRANSPORTS
@pytest.mark.parametrize(
    "alter",
    [
        lambda id: id[:30] + ("B" if id[30] == "A" else "A") + id[31:],
        lambda id: id[:30] + id[34:],
        lambda id: id + "~7",
    ],
    ids=["changed", "shortened", "with a state"],
)
async def test_an_altered_id_leads_to_a_resync(
    served: Served, transport: type[ResumingClient], alter: Callable[[str], str]
) -> None:
    """Without a signature the gateway would accept a later position and send nothing."""
    client = transport(served.http, QUAKES, {})
    async with client.connected(served.url) as events:
        await anext(events)
        await put_raw(served, "q0")
        await anext(events)
    assert client.last is not None
    client.last = alter(client.last)
    async with client.connected(served.url) as events:
        received = await anext(events)
        assert [error["extensions"]["code"] for error in received["errors"]] == ["RESYNC"]
        await put_raw(served, "q1")
        assert (await anext(events))["data"] == {"earthquakeDetected": {"eventId": "q1"}}


@pytest.mark.parametrize("break_", ["\n", "\r", "\0", " "])
async def test_no_event_can_be_slipped_in_by_an_id(served: Served, break_: str) -> None:
    user = "ada"
    last = f"a.b.c~x{break_}{break_}event: next{break_}data: forged{break_}{break_}"
    asked = {"query": ARRIVALS, "extensions": {"resumeAfter": last}}
    headers = {**served.headers(user, Role.USER), "accept": "text/event-stream"}
    async with served.http.post(f"{served.url}/graphql", json=asked, headers=headers) as response:
        received = await response.text()
    assert "forged" not in received
    assert "BAD_USER_INPUT" in received


async def test_an_id_with_a_break_is_never_sent() -> None:
    sent: list[Any] = []

    async def outcomes() -> AsyncGenerator[Outcome, None]:
        outcome = Outcome({"a": 1})
        outcome.set_event_id("a.b.c~x\n\ndata: forged", 1)
        yield outcome

    async def send(message: Any) -> None:
        sent.append(message)

    streams, wait = ResponseStreams(StreamLimits()), asyncio.Event().wait
    await streams.serve(outcomes(), ServerSentEvents(), Caller(None, "::1"), wait, send)  # type: ignore[arg-type]
    body = b"".join(message.get("body", b"") for message in sent)
    assert b"\ndata: forged" not in body
    assert b"INTERNAL" in body


async def test_equal_subscribers_that_go_on_join_the_others(served: Served) -> None:
    client, groups = SocketClient(served.http, QUAKES, {}), served.gateway.server.subscriptions._groups
    stays = await served.listen(QUAKES)
    await served.settle(EARTHQUAKES)
    async with client.connected(served.url) as events:
        await anext(events)
        await put_raw(served, "q1")
        await anext(events)
    await put_raw(served, "q2")
    # Otherwise the replay could deliver q2 before the group has it.
    for name in ("q1", "q2"):
        assert await stays.event() == {"earthquakeDetected": {"eventId": name}}
    async with client.connected(served.url) as events:
        assert (await anext(events))["data"] == {"earthquakeDetected": {"eventId": "q2"}}
        (group,) = groups.values()
        coming = asyncio.ensure_future(anext(events))  # the client answers pings only while it reads
        # If the replay delivered q3, its member would go live only with the next event of the group.
        await until(lambda: not group._replays)
        await put_raw(served, "q3")
        assert (await coming)["data"] == {"earthquakeDetected": {"eventId": "q3"}}
        assert len(group._members) == 2
        await until(lambda: all(member.state is MemberState.LIVE for member in group._members))
    assert await stays.event() == {"earthquakeDetected": {"eventId": "q3"}}


# Each subscription, with the rights at the time when its client resumes


async def missed(
    served: Served,
    query: str,
    happen: Callable[[], Awaitable[Any]],
    before: Callable[[], Awaitable[Any]] | None = None,
    *,
    user: str = "ada",
    again: str | None = None,
) -> AsyncGenerator[Any, None]:
    """Return the first event of a client that resumes, as `again` if given, after `happened`.

    `before` causes one event.
    """
    client = SocketClient(served.http, query, served.headers(user, Role.USER))
    async with client.connected(served.url) as events:
        await anext(events)
        if before is not None:
            await before()
            await anext(events)
    await happen()
    await told_all(served)
    client.headers = dict(served.headers(again or user, Role.USER))
    async with client.connected(served.url) as events:
        async for payload in events:
            yield payload


async def test_missed_notifications_of_the_user_are_replayed_and_no_others(served: Served) -> None:
    async def happen() -> None:
        for owner, name in (("eve", "hers"), ("ada", "mine")):
            await served.store().write_all(FEED, puts=[notification_item(name, owner)])

    first = served.store().write_all(FEED, puts=[notification_item("first")])
    async with aclosing(missed(served, RECEIVED % "ada", happen, lambda: first)) as events:
        assert (await anext(events))["data"]["notificationReceived"]["notificationId"].endswith("mine")


async def test_missed_events_are_replayed_with_the_visibility_of_the_present(served: Served) -> None:
    async def nothing() -> None: ...

    async with aclosing(missed(served, RECEIVED % "ada", nothing, again="eve")) as events:
        errors = (await anext(events))["errors"]
    assert [error["extensions"]["code"] for error in errors] == ["FORBIDDEN"]


async def test_authors_that_were_left_meanwhile_stay_silent(served: Served) -> None:
    async def write(*items: Any) -> None:
        for item in items:
            await served.store().write_all(FEED, puts=[item])

    left, gone, new = [source_item("ada", name, iso(NOON)) for name in ("left", "gone", "new")]
    await write(left, source_item("ada", "big", iso(NOON)))
    soon = NOON + timedelta(seconds=1)

    async def happen() -> None:
        await write(post_item("x", "left", soon), gone, post_item("y", "gone", soon))
        for source in (left, gone):
            await served.store().write_all(FEED, deletes=[Key(source["PK"], source["SK"])])
        await write(feed_entry(post_item("first", "big", soon)), post_item("second", "big", soon), new)
        await write(post_item("third", "new", soon))

    async with aclosing(missed(served, ARRIVALS, happen, lambda: write(post_item("first", "big", soon)))) as events:
        posts = [(await anext(events))["data"]["homeFeedUpdated"]["postId"] for _ in range(2)]
    assert posts == ["second", "third"]


ALERTS = 'subscription { watchAlerts(userId: "ada") { category } }'


async def test_alerts_come_that_were_missed_for_the_watches_there_are(served: Served) -> None:
    create = 'mutation ($c: String!) { createWatch(input: {area: "Harbor", category: $c}) { watchId } }'
    cats = (await served.ask(create, {"c": "Cats"}, user="ada")).data["createWatch"]["watchId"]
    await served.ask(create, {"c": "Sneakers"}, user="ada")

    async def happen() -> None:
        await report_sighting(served, area="Harbor", category="Cats", user="bob")
        delete = 'mutation ($id: ID!) { deleteWatch(area: "Harbor", category: "Cats", watchId: $id) { watchId } }'
        await served.ask(delete, {"id": cats}, user="ada")
        art = (await served.ask(create, {"c": "Street Art"}, user="ada")).data["createWatch"]["watchId"]
        await report_sighting(served, area="Harbor", category="Street Art", user="bob")
        await served.ask(delete.replace("Cats", "Street Art"), {"id": art}, user="ada")
        await report_sighting(served, area="Harbor", category="Sneakers", user="bob")

    before = partial(report_sighting, served, area="Harbor", category="Cats", user="bob")
    async with aclosing(missed(served, ALERTS, happen, before)) as events:
        assert (await anext(events))["data"] == {"watchAlerts": {"category": "Sneakers"}}


ENGAGEMENT = 'subscription { postEngagement(postId: "p") { likeCount } }'


async def test_a_post_that_became_invisible_is_not_replayed(served: Served) -> None:
    """Its author subscribes, too: the members of the group have different rights."""
    await served.store().write_all(FEED, puts=[post_item("p", "bob")])
    stays = await served.listen(ENGAGEMENT, user="bob")
    await stays.event()

    async def happen() -> None:
        await served.store().write_all(FEED, puts=[post_item("p", "bob", visibility="private") | {"likes": 2}])

    async with aclosing(missed(served, ENGAGEMENT, happen)) as events:
        said = await anext(events)
    errors = said["payload"] if "payload" in said else said["errors"]
    assert [error["extensions"]["code"] for error in errors] == ["FORBIDDEN"]
    assert await stays.event() == {"postEngagement": {"likeCount": 2}}


LIVESTREAMS = "subscription { livestreamChanged { title status } }"


async def test_a_livestream_that_began_and_an_announced_one_are_replayed(served: Served) -> None:
    await announce(served, title="Soon", startTime=iso_after_noon(minutes=1), endTime=None)

    async def happen() -> None:
        served.clock.forward(minutes=2)
        await announce(served, title="New", startTime=iso_after_noon(days=1), endTime=None)

    before = partial(announce, served, title="Before", startTime=iso_after_noon(days=1), endTime=None)
    async with aclosing(missed(served, LIVESTREAMS, happen, before)) as events:
        changes = [(await anext(events))["data"]["livestreamChanged"] for _ in range(2)]
    expected = [{"title": "New", "status": "UPCOMING"}, {"title": "Soon", "status": "LIVE"}]
    assert sorted(changes, key=lambda event: event["title"]) == expected


SCORES = "subscription { liveScores(minIntervalMs: 60000) { isSnapshot updates { matchId version conflatedCount } } }"


async def test_scores_that_waited_while_one_was_cut_off_are_not_lost(served: Served) -> None:
    await register_at_version_1(served, "m1", "m2")
    client = SocketClient(served.http, SCORES, {})
    async with client.connected(served.url) as events:
        assert (await anext(events))["data"]["liveScores"]["isSnapshot"]
        await advance(served, "m1")  # the subscription conflates for a minute
        await advance(served, "m2", CricketEvent("m2:1", CricketEventKind.WICKET, "WICKET!"))
        received = (await anext(events))["data"]["liveScores"]["updates"]
        assert received == [{"matchId": "m2", "version": 2, "conflatedCount": 0}]
    await advance(served, "m2")
    async with client.connected(served.url) as events:
        received = [(await anext(events))["data"]["liveScores"] for _ in range(2)]
    assert [scores["isSnapshot"] for scores in received] == [False, False]
    assert [update for scores in received for update in scores["updates"]] == [
        {"matchId": "m1", "version": 2, "conflatedCount": 0},
        {"matchId": "m2", "version": 3, "conflatedCount": 0},
    ]


async def test_matches_that_do_not_fit_into_an_id_begin_with_a_snapshot(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resume_ids, "LONGEST_RESUME", 80)
    await register_at_version_1(served, *[f"match-{number}" for number in range(5)])
    client = SocketClient(served.http, SCORES, {})
    for _ in range(2):
        async with client.connected(served.url) as events:
            received = (await anext(events))["data"]["liveScores"]
            assert received["isSnapshot"]
            assert len(received["updates"]) == 5
        assert ResumeIds(SECRET.encode()).open(client.last, b"liveScores?{}") == ResumeRequest(UNKNOWN, "")


async def test_a_herd_of_resuming_clients_shares_one_replay(
    served: Served, other: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients = [SocketClient(served.http, QUAKES, {}) for _ in range(20)]
    async with clients[0].connected(served.url) as events:
        await anext(events)
        await put_raw(served, "q0")
        await anext(events)
    for client in clients:
        client.last = clients[0].last
    for number in range(3):
        await put_raw(served, f"q{number + 1}")
    made, really = list[Any](), EventExecutor.start

    def counted(maker: EventExecutor, member: Any, delivery: Any) -> Any:
        made.append(delivery)
        return really(maker, member, delivery)

    monkeypatch.setattr(EventExecutor, "start", counted)

    async def had(client: ResumingClient) -> list[str]:
        async with client.connected(other.url) as events:
            return [(await anext(events))["data"]["earthquakeDetected"]["eventId"] for _ in range(3)]

    assert await asyncio.gather(*map(had, clients)) == [["q1", "q2", "q3"]] * 20
    assert len(made) <= 6  # once, and once more for late clients


REPORT = 'mutation { reportSighting(input: {area: "Harbor", category: "Cats", description: "A tabby"}) { sightingId } }'
REPORTED = "subscription { sightingReported { sightingId } }"


@pytest.mark.proof
@TRANSPORTS
async def test_a_client_of_a_killed_process_resumes_at_the_next_one_on_its_data(
    tmp_path: Path, transport: type[ResumingClient]
) -> None:
    folder = tmp_path / "data"
    with serve_process(folder) as first:
        token = first.token()

        def report(gateway: GatewayProcess) -> Any:
            return gateway.data(REPORT, token)["reportSighting"]

        async with aiohttp.ClientSession() as http:
            client = transport(http, REPORTED, {})
            async with client.connected(first.url) as events:
                await anext(events)
                expected = [await asyncio.to_thread(report, first)]
                received = [await anext(events)]
            expected.append(await asyncio.to_thread(report, first))
            first.process.kill()
            first.process.wait()
            with serve_process(folder, "--no-demo") as second:
                expected.append(await asyncio.to_thread(report, second))
                async with client.connected(second.url) as events:
                    received += [await anext(events), await anext(events)]
                    expected.append(await asyncio.to_thread(report, second))
                    received.append(await anext(events))
    assert [one["data"]["sightingReported"] for one in received] == expected
