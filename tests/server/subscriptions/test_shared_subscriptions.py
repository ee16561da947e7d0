"""Equal subscriptions: one execution is delivered to all, and never to a caller with other rights."""

import asyncio
import random
from itertools import pairwise
from typing import Any, cast

import pytest
from graphql.execution import Executor
from hypothesis import given, settings
from hypothesis import strategies as st

from datastore.change_streams.shards.stream_reader import ChangesLost
from datastore.change_streams.subscriptions.event_source import SourceReader
from datastore.keyspace.feeds.table import FEED
from datastore.keyspace.matches.active_matches import ACTIVE_MATCHES
from datastore.keyspace.sightings import BLIP
from datastore.matches.live_state import LiveScore
from datastore.matches.match_follows import MatchFollows
from datastore.model.identity import Role
from datastore.session.metering import Meter
from resolvers.matches.join_filters import ScoresJoinFilter
from resolvers.matches.match_update import LiveScores, MatchUpdate
from resolvers.shared import event_source as subscribing
from server.admission.budgets import CallerBudgets, LocalBuckets
from server.documents.request import GraphQLParams
from server.operations.report import Report
from server.operations.request import Request, Transport
from server.operations.runner import UNLIMITED
from server.subscriptions import manager
from tests.support.active_matches import begin
from tests.support.contract import every_call
from tests.support.feed_items import following_item, post_item
from tests.support.feed_subscriptions import delete_one_by_one as remove_post
from tests.support.feed_subscriptions import put_one_by_one as put_post
from tests.support.match_updates import advance, nobody_follows, play_out, register_at_version_1
from tests.support.served import Served, call_name
from tests.support.shared_subscriptions import (
    FOLLOWED,
    REPORTED,
    RecordingListener,
    all_end,
    caller,
    follow_subscription,
    groups,
    prepare_subscription,
    runner,
    share_nothing,
    stop_following,
    subscriptions,
)
from tests.support.sightings import report_sighting as report_sighting
from tests.support.until import until

__all__ = ["all_end"]  # fixtures

SCORE = 'subscription { matchUpdates(matchId: "m1") { version isSnapshot liveScore { version } } }'

WITH_MATCH = 'subscription { matchUpdates(matchId: "m1") { version match { round } } }'

SCORES = """subscription { liveScores {
  isSnapshot removedMatchIds updates { matchId version isSnapshot liveScore { version } }
} }"""

COUNTS = 'subscription { postEngagement(postId: "p", whenSlow: CLOSE) { likeCount } }'


# --- Once for all -----------------------------------------------------------------------------------------------------


async def test_fifty_viewers_cost_as_much_as_one(served: Served) -> None:
    await register_at_version_1(served, "m1", round="Final")
    viewers = [await follow_subscription(served, WITH_MATCH, f"user-{number}") for number in range(50)]
    assert {(await viewer.next())["matchUpdates"]["version"] for viewer in viewers} == {1}
    served.reports.clear()

    with every_call(served) as calls:
        await advance(served)
        received = [await viewer.next() for viewer in viewers]

    assert received == [{"matchUpdates": {"version": 2, "match": {"round": "Final"}}}] * 50
    assert [call_name(call) for call in calls].count("GetItem cricket-fixtures") == 1
    assert len({id(viewer.outcomes[-1]) for viewer in viewers}) == 1
    assert groups(served) == 1
    assert served.gateway.services is not None
    assert served.gateway.services.changes.followers(ACTIVE_MATCHES) == 50

    stop_following(*viewers)
    await subscriptions(served).aclose()
    await nobody_follows(served)
    assert [(report.events, report.codes, report.calls >= 1) for report in served.reports] == [(2, [], True)] * 50
    assert sum(report.sent_bytes for report in served.reports) == sum(
        len(outcome.body) for viewer in viewers for outcome in viewer.outcomes
    )
    # Each member pays a share of the reads.
    assert len({report.cost for report in served.reports if report.cost}) == 1
    assert all(0 < report.cost < 0.5 for report in served.reports)


async def test_a_different_operation_is_another_group(served: Served) -> None:
    await register_at_version_1(served, "m1", "m2")
    query = "subscription($id: ID!) { matchUpdates(matchId: $id) { matchId } }"

    async def of(**variables: Any) -> RecordingListener:
        operation = GraphQLParams(query, variables)
        request = await runner(served).prepare(operation, caller("ada"), Transport.WEBSOCKET)
        assert isinstance(request, Request)
        heard = RecordingListener()
        heard.following = await subscriptions(served).follow(request, heard)
        return heard

    viewers = [await of(id="m1"), await of(id="m2"), await of(id="m1")]
    assert [(await viewer.next())["matchUpdates"]["matchId"] for viewer in viewers] == ["m1", "m2", "m1"]
    assert groups(served) == 2
    stop_following(*viewers)


async def test_over_all_transports_it_is_one(served: Served) -> None:
    listener = await served.listen(REPORTED)
    heard = await follow_subscription(served, REPORTED)
    stream = subscriptions(served).stream(await prepare_subscription(served, REPORTED, caller("ada")))
    assert (await anext(stream)).is_position_only
    pulled = asyncio.ensure_future(anext(stream))
    await served.settle(BLIP, 3)
    assert groups(served) == 1

    sighting = await report_sighting(served)

    expected = {"sightingReported": {"sightingId": sighting["sightingId"]}}
    assert [await listener.event(), await heard.next(), (await pulled).data] == [expected] * 3
    await stream.aclose()
    stop_following(heard)
    await listener.socket.close()
    async with asyncio.timeout(50):
        while groups(served):  # noqa: ASYNC110 - it is over the wire
            await asyncio.sleep(0.01)


async def test_a_subscription_joins_an_equal_one_that_is_being_started(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await register_at_version_1(served, "m1")
    accounts, put_down, both = runner(served).billing, list[Any](), asyncio.Barrier(2)
    source, measure = manager._source, accounts.measure

    def noted(report: Report, meter: Meter) -> float:
        put_down.append(meter)
        return measure(report, meter)

    async def at_once(executor: Executor[Any]) -> Any:
        made = await source(executor)
        monkeypatch.setattr(executor.context_value, "close", lambda: put_down.append("closed"))
        await both.wait()
        return made

    with monkeypatch.context() as patched:
        patched.setattr(accounts, "measure", noted)
        patched.setattr(manager, "_source", at_once)
        viewers = await asyncio.gather(follow_subscription(served, SCORE), follow_subscription(served, SCORE))
        assert put_down[0] == "closed"
        assert len(put_down) == 2
    assert groups(served) == 1
    assert [(await viewer.next())["matchUpdates"]["version"] for viewer in viewers] == [1, 1]
    stop_following(*viewers)


async def test_a_member_with_nothing_queued_leaves_at_once(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    streams = subscriptions(served)
    monkeypatch.setattr(runner(served).billing, "_budgets", CallerBudgets(LocalBuckets(), UNLIMITED))
    await register_at_version_1(served, "m1")
    viewers = [await follow_subscription(served, SCORE) for _ in range(3)]
    for viewer in viewers:
        await viewer.next()
    await streams.aclose()  # the event is charged
    served.reports.clear()

    stop_following(*viewers)

    await until(lambda: len(served.reports) == 3 and not streams._tasks)
    assert [(report.events, report.calls > 0) for report in served.reports] == [(1, True)] * 3


# --- To each what they may know ---------------------------------------------------------------------------------------


async def test_no_event_is_sent_to_a_caller_with_other_rights(served: Served) -> None:
    await register_at_version_1(served, "m1")
    for user in ("ada", "bob"):
        await served.ask('mutation { followMatch(matchId: "m1", input: {teamId: "10"}) { matchId } }', user=user)
    before = [await follow_subscription(served, FOLLOWED, user) for user in ("ada", "eve", "bob", "ada")]
    for viewer in before:
        await viewer.next()

    stranger = await follow_subscription(served, FOLLOWED)
    viewers = [*before, await follow_subscription(served, FOLLOWED, "eve")]
    await viewers[-1].next()
    assert (await stranger.next())["matchUpdates"]["match"] == {"followedByViewer": None}
    assert stranger.outcomes[0].formatted_errors == []

    follows = {"ada": await is_followed(served, "ada"), "eve": await is_followed(served, "eve")}
    users = ("ada", "eve", "bob", "ada", "eve")
    for version in (2, 3):
        await advance(served)
        for user, viewer in zip(users, viewers, strict=True):
            update = (await viewer.next())["matchUpdates"]
            assert update == {
                "version": version,
                "match": {"followedByViewer": follows["ada" if user != "eve" else "eve"]},
            }
        assert (await stranger.next())["matchUpdates"]["match"] == {"followedByViewer": None}
    assert follows == {"ada": True, "eve": False}
    stop_following(*viewers, stranger)


async def is_followed(served: Served, user: str) -> bool:
    answer = await served.ask('{ match(id: "m1") { followedByViewer } }', user=user)
    return bool(answer.data["match"]["followedByViewer"])


async def test_the_same_user_with_other_rights_is_another(served: Served) -> None:
    """A user who sees a post for followers, and the same user without that right."""
    post, follow_bob = post_item("p", "bob", visibility="followers"), following_item("ada", "bob")
    await put_post(served, post, follow_bob)
    viewers = [
        await follow_subscription(served, COUNTS, "ada"),
        await follow_subscription(served, COUNTS, "ada", Role.ADMIN),
        await follow_subscription(served, COUNTS, "bob"),
    ]
    stranger = await follow_subscription(served, COUNTS, "eve")
    assert [(await viewer.next())["postEngagement"]["likeCount"] for viewer in viewers] == [0, 0, 0]
    assert await stranger.end() == "NOT_FOUND"
    assert stranger.outcomes == []

    await remove_post(served, follow_bob)
    await put_post(served, post | {"likes": 1})

    assert await viewers[0].end() == "FORBIDDEN"
    assert [(await viewer.next())["postEngagement"]["likeCount"] for viewer in viewers[1:]] == [1, 1]
    assert len(viewers[0].outcomes) == 1
    stop_following(*viewers)


async def test_public_events_are_executed_once_for_all_users(served: Served) -> None:
    await put_post(served, post_item("p", "bob"))
    viewers = [await follow_subscription(served, COUNTS, f"user-{number}") for number in range(5)]
    for viewer in viewers:
        await viewer.next()

    with every_call(served) as calls:
        await put_post(served, post_item("p", "bob") | {"likes": 1})
        assert [(await viewer.next())["postEngagement"]["likeCount"] for viewer in viewers] == [1] * 5

    assert len({id(viewer.outcomes[-1]) for viewer in viewers}) == 1
    assert "GetItem feed" not in [call_name(call) for call in calls]
    stop_following(*viewers)


async def test_a_source_that_asks_too_late_for_the_caller_sends_nothing(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A defect of our own: it must send no event rather than another caller's."""
    tell = subscribing.follow

    async def curious(reader: SourceReader[Any], *given: Any, **named: Any) -> Any:
        async for delivery in tell(reader, *given, **named):
            assert delivery.event is None or reader.context.identity is not None
            yield delivery

    monkeypatch.setattr("resolvers.sightings.sightings.follow", curious)
    viewers = [await follow_subscription(served, REPORTED, user) for user in ("ada", "bob")]
    await served.settle(BLIP, 2)

    await report_sighting(served)

    assert [await viewer.end() for viewer in viewers] == ["INTERNAL"] * 2
    assert [viewer.outcomes for viewer in viewers] == [[], []]


# --- Who joins --------------------------------------------------------------------------------------------------------


@pytest.mark.proof
async def test_a_client_that_joins_at_any_time_receives_every_version_once(served: Served) -> None:
    rng = random.Random(1)
    ids = ["m1", "m2"]
    instance = await begin(served, *ids, balls=2)
    first = await follow_subscription(served, SCORES)
    playing = asyncio.create_task(play_out(instance, *ids))
    viewers = [first]
    single: list[RecordingListener] = []
    while not playing.done() and len(viewers) < 40:
        viewers.append(await follow_subscription(served, SCORES, rng.choice([None, "ada", "bob"])))
        single.append(await follow_subscription(served, SCORE))
        await asyncio.sleep(rng.random() * 0.05)
    await playing
    last = (
        await served.ask(
            '{ m1: match(id: "m1") { liveScore { version } } m2: match(id: "m2") { liveScore { version } } }'
        )
    ).data
    until = {id: last[id]["liveScore"]["version"] for id in ids}

    for viewer in viewers:
        seen: dict[str, list[Any]] = {id: [] for id in ids}
        while {id: updates[-1]["version"] if updates else 0 for id, updates in seen.items()} != until:
            for update in (await viewer.next())["liveScores"]["updates"]:
                seen[update["matchId"]].append(update)
        for updates in seen.values():
            check_versions(updates)
    for viewer in single:
        received = [(await viewer.next())["matchUpdates"]]
        while received[-1]["version"] < until["m1"]:
            received.append((await viewer.next())["matchUpdates"])
        check_versions(received)
    assert len({viewer.outcomes[0].body for viewer in viewers}) >= 3
    assert groups(served) == 2
    stop_following(*viewers, *single)


def check_versions(updates: list[Any]) -> None:
    """Check for a snapshot followed by every version once."""
    assert [update["isSnapshot"] for update in updates] == [True] + [False] * (len(updates) - 1)
    for before, after in pairwise(updates):
        assert after["version"] == before["version"] + 1


def _update(match_id: str, version: int, *, is_snapshot: bool) -> MatchUpdate:
    return MatchUpdate(match_id, "L", version, cast(LiveScore, None), is_snapshot)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_what_is_passed_over_is_what_one_knew(data: st.DataObject) -> None:
    """Matches continue, end and return. A client joins at one moment and reads their state at a later one."""
    steps = data.draw(
        st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["next", "next", "leave"])), max_size=25)
    )
    joined = data.draw(st.integers(0, len(steps)))
    read = data.draw(st.integers(joined, len(steps)))
    versions = {"a": 1, "b": 1}
    live = {"a": 1}
    since: ScoresJoinFilter | None = None
    snapshot: dict[str, int] = {}
    events: list[LiveScores] = []
    states = [dict(live)]
    for id, what in steps:
        if what == "leave":
            events.append(LiveScores(False, [], [id] if live.pop(id, None) else []))
        else:
            is_back = id not in live
            versions[id] += not is_back
            live[id] = versions[id]
            events.append(LiveScores(False, [_update(id, live[id], is_snapshot=is_back)]))
        states.append(dict(live))

    received: dict[str, int] = {}
    for at, event in enumerate(events):
        if at == joined:
            since = ScoresJoinFilter(states[at])
            snapshot = states[read]
            since.begin(
                LiveScores(True, [MatchUpdate(id, "L", v, cast(LiveScore, None), True) for id, v in snapshot.items()])
            )
            received = dict(snapshot)
        if since is None or not (event.ended or event.updates) or not since.accepts(event):
            continue
        for id in event.ended:
            assert received.pop(id)
        for update in event.updates:
            if update.is_snapshot:
                assert update.version >= received.get(update.match_id, 0)
            else:
                assert update.version == received[update.match_id] + 1
            received[update.match_id] = update.version
    if since is not None:
        assert received == live
        assert not steps or since.is_settled or read == len(steps)


async def test_clients_that_join_during_a_read_receive_the_next_read(served: Served) -> None:
    await register_at_version_1(served, "m1")
    first = await follow_subscription(served, SCORE)
    await first.next()

    with every_call(served) as calls:
        viewers = [await follow_subscription(served, SCORE, f"user-{number}") for number in range(20)]
        assert {(await viewer.next())["matchUpdates"]["version"] for viewer in viewers} == {1}

    # One for the first member, one for the members that joined meanwhile.
    assert [call_name(call) for call in calls].count("GetItem active-matches") <= 3
    stop_following(first, *viewers)


# --- What fails -------------------------------------------------------------------------------------------------------


async def test_an_event_that_cannot_be_read_is_an_event_and_a_source_that_fails_ends_all(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await register_at_version_1(served, "m1")
    viewers = [await follow_subscription(served, WITH_MATCH, user) for user in ("ada", "bob")]
    for viewer in viewers:
        await viewer.next()

    def broken(_: object) -> None:
        raise RuntimeError("broken inside")

    with monkeypatch.context() as patched:
        patched.setattr("resolvers.shared.context.Context.fixtures", property(broken))
        await advance(served)
        assert [await viewer.next() for viewer in viewers] == [{"matchUpdates": {"version": 2, "match": None}}] * 2
    assert [outcome.code for viewer in viewers for outcome in viewer.outcomes] == [None, "INTERNAL"] * 2
    await advance(served)
    for viewer in viewers:
        await viewer.next()

    assert served.gateway.services is not None
    served.reports.clear()
    served.gateway.services.changes._tables[ACTIVE_MATCHES.name].log.end(ChangesLost("Some may have been missed."))

    assert [await viewer.end() for viewer in viewers] == [ChangesLost.code] * 2
    await subscriptions(served).aclose()
    assert [report.codes for report in served.reports] == [["INTERNAL", ChangesLost.code]] * 2
    # A new member starts again.
    again = await follow_subscription(served, WITH_MATCH)
    assert (await again.next())["matchUpdates"]["version"] == 3
    stop_following(again)


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("stuck", ["ada", "bob"])
async def test_an_event_that_hangs_for_one_member_times_out_for_it_alone(
    served: Served, monkeypatch: pytest.MonkeyPatch, stuck: str, alone: bool
) -> None:
    """Whether the member is the first that the event is executed for, and whether the event is shared at all."""
    await register_at_version_1(served, "m1")
    read, given_up = MatchFollows.by_key, list[str]()

    async def hanging(follows: MatchFollows, match_id: str, user_id: str) -> Any:
        if user_id == stuck:
            try:
                await asyncio.sleep(60)
            finally:
                given_up.append(user_id)
        return await read(follows, match_id, user_id)

    if alone:
        share_nothing(monkeypatch)
    viewers = {user: await follow_subscription(served, FOLLOWED, user) for user in ("ada", "bob")}
    again = await follow_subscription(served, FOLLOWED, stuck)
    for viewer in (*viewers.values(), again):
        await viewer.next()

    async def time_is_up(for_so_many: int) -> None:
        under_way = runner(served).deadlines._due
        async with asyncio.timeout(50):
            while len(under_way) != for_so_many:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.001)
        for one in tuple(under_way):
            one.expire()

    monkeypatch.setattr(MatchFollows, "by_key", hanging)
    other = viewers["bob" if stuck == "ada" else "ada"]
    for version in (2, 3, 4):  # it delays no later event
        await advance(served)
        assert (await other.next())["matchUpdates"]["version"] == version
    await time_is_up(2 if alone else 1)
    assert [await viewers[stuck].end(), await again.end()] == ["TIMEOUT"] * 2
    late = await follow_subscription(served, FOLLOWED, stuck)
    await time_is_up(1)
    assert await late.end() == "TIMEOUT"
    await advance(served)
    assert (await other.next())["matchUpdates"]["version"] == 5
    assert not other.last
    assert set(given_up) == {stuck}
    stop_following(other)
    async with asyncio.timeout(50):
        while served.gateway.server.admission.subscriptions.total:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.001)


async def test_a_source_that_completes_ends_for_all(served: Served) -> None:
    await put_post(served, post_item("p", "bob"))
    viewers = [await follow_subscription(served, COUNTS, user) for user in ("ada", "bob")]
    for viewer in viewers:
        await viewer.next()

    await remove_post(served, post_item("p", "bob"))

    assert [await viewer.end() for viewer in viewers] == [None, None]
    assert served.gateway.services is not None
    async with asyncio.timeout(50):
        while served.gateway.services.changes.followers(FEED):  # noqa: ASYNC110 - it is over the wire
            await asyncio.sleep(0.01)
