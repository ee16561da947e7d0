"""Members of one group with different operations: each receives its own result, and all share one stream."""

from typing import Any

import pytest

from datastore.keyspace.matches.active_matches import ACTIVE_MATCHES
from server.documents.request import GraphQLParams
from server.operations.request import Request, Transport
from server.subscriptions.event_execution import EventExecutor
from server.subscriptions.resume_bindings import binding_of, stream_key
from tests.support.contract import every_call
from tests.support.match_updates import advance, register_at_version_1
from tests.support.served import Served, call_name
from tests.support.shared_subscriptions import (
    RecordingListener,
    all_end,
    caller,
    follow_subscription,
    groups,
    runner,
    stop_following,
    subscriptions,
)

__all__ = ["all_end"]  # fixtures

VERSION = 'subscription { matchUpdates(matchId: "m1") { version } }'


async def prepared(served: Served, query: str, variables: dict[str, Any] | None = None) -> Request:
    params = GraphQLParams(query, variables)
    request = await runner(served).prepare(params, caller(None), Transport.WEBSOCKET)
    assert isinstance(request, Request), request.formatted_errors
    return request


async def follow_with(served: Served, query: str, variables: dict[str, Any] | None = None) -> RecordingListener:
    listener = RecordingListener()
    listener.following = await subscriptions(served).follow(await prepared(served, query, variables), listener)
    return listener


async def test_different_documents_share_one_stream_and_equal_ones_one_execution(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await register_at_version_1(served, "m1")
    named = [f'subscription {{ matchUpdates(matchId: "m1") {{ v{number}: version }} }}' for number in range(3)]
    by_variable = "subscription($id: ID!) { matchUpdates(matchId: $id) { byVariable: version } }"
    viewers = [await follow_subscription(served, query) for query in (*named, VERSION, VERSION)]
    viewers.append(await follow_with(served, by_variable, {"id": "m1"}))
    names = ["v0", "v1", "v2", "version", "version", "byVariable"]
    assert [await viewer.next() for viewer in viewers] == [{"matchUpdates": {name: 1}} for name in names]
    assert groups(served) == 1
    assert served.gateway.services is not None
    assert served.gateway.services.changes.followers(ACTIVE_MATCHES) == 6
    executed, really = list[Any](), EventExecutor.start

    def start(executor: EventExecutor, member: Any, delivery: Any) -> Any:
        executed.append(member)
        return really(executor, member, delivery)

    monkeypatch.setattr(EventExecutor, "start", start)
    with every_call(served) as calls:
        await advance(served)
        assert [await viewer.next() for viewer in viewers] == [{"matchUpdates": {name: 2}} for name in names]

    assert len(executed) == 5
    assert viewers[3].outcomes[-1] is viewers[4].outcomes[-1]
    assert len({outcome.event_id for viewer in viewers for outcome in viewer.outcomes[-1:]}) == 1
    assert [call_name(call) for call in calls].count("GetItem active-matches") == 1  # that of `advance`
    stop_following(*viewers)


async def test_an_operation_that_waits_delays_no_other_operation_of_the_group(served: Served) -> None:
    await register_at_version_1(served, "m1", round="Final")
    reading = 'subscription { matchUpdates(matchId: "m1") { version match { round } } }'
    viewers = [await follow_subscription(served, query) for query in (reading, VERSION)]
    for viewer in viewers:
        await viewer.next()
    for version in (2, 3):
        await advance(served)
        assert await viewers[0].next() == {"matchUpdates": {"version": version, "match": {"round": "Final"}}}
        assert await viewers[1].next() == {"matchUpdates": {"version": version}}
    stop_following(*viewers)


async def test_a_personal_operation_beside_a_public_one_is_split_by_rights(served: Served) -> None:
    await register_at_version_1(served, "m1")
    await served.ask('mutation { followMatch(matchId: "m1", input: {teamId: "10"}) { matchId } }', user="ada")
    personal = 'subscription { matchUpdates(matchId: "m1") { version match { followedByViewer } } }'
    users = [("ada", True), ("bob", False), ("ada", True)]
    viewers = [await follow_subscription(served, personal, user) for user, _ in users]
    public = await follow_subscription(served, VERSION, "bob")
    for version in (1, 2, 3):
        for viewer, (_, follows) in zip(viewers, users, strict=True):
            update = (await viewer.next())["matchUpdates"]
            assert update == {"version": version, "match": {"followedByViewer": follows}}
        assert await public.next() == {"matchUpdates": {"version": version}}
        await advance(served)
    assert groups(served) == 1
    assert viewers[0].outcomes[-1] is viewers[2].outcomes[-1]
    stop_following(*viewers, public)


async def test_invalid_variables_are_refused_at_the_start_also_in_a_running_group(served: Served) -> None:
    await register_at_version_1(served, "m1")
    first = await follow_subscription(served, VERSION)
    await first.next()
    query = 'subscription($shown: Boolean!) { matchUpdates(matchId: "m1") { version @include(if: $shown) } }'
    refused = await follow_with(served, query, {"shown": "yes"})
    assert await refused.end() == "BAD_USER_INPUT"
    assert refused.outcomes == []
    assert groups(served) == 1
    stop_following(first)


async def test_a_live_subscription_keeps_its_compiled_operation(served: Served) -> None:
    await register_at_version_1(served, "m1")
    viewer = await follow_subscription(served, VERSION)
    await viewer.next()
    await advance(served)
    await viewer.next()
    (group,) = subscriptions(served)._groups.values()
    ((audience, _),) = group._audiences.snapshot()
    program = audience.operation.program
    compiled = program.compiled
    assert compiled is not None
    cache = program._cache
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(cache, "max_fields", 1)
        for number in range(3):
            for _ in range(2):
                await served.ask(f"{{ n{number}: __typename }}")
        assert program.compiled is compiled
        stop_following(viewer)
        for _ in range(2):
            await served.ask("{ last: __typename }")
        assert program.compiled is None


async def test_the_stream_key_tells_apart_what_the_arguments_do(served: Served) -> None:
    missing = 'subscription($id: ID, $min: Int) { matchUpdates(matchId: "m1", minIntervalMs: $min) { version } }'
    kinds = [
        (VERSION, None),
        ('subscription { matchUpdates(matchId: "m1", minIntervalMs: 0) { version } }', None),
        ('subscription { matchUpdates(matchId: "m2") { version } }', None),
        (missing, None),
        ("subscription { liveScores { isSnapshot } }", None),
        ("subscription($code: String) { liveScores(leagueCode: $code) { isSnapshot } }", {"code": None}),
        ("subscription($code: String) { liveScores(leagueCode: $code) { isSnapshot } }", {"code": '{"": "Undefined"}'}),
    ]
    requests = [await prepared(served, query.replace("$id: ID, ", ""), variables) for query, variables in kinds]
    assert len({stream_key(request) for request in requests}) == len(kinds)
    same = [
        await prepared(served, VERSION.replace("{ version }", "{ v: version }")),
        await prepared(served, "subscription($id: ID!) { x: matchUpdates(matchId: $id) { version } }", {"id": "m1"}),
        await prepared(served, 'subscription($id: ID = "m1") { matchUpdates(matchId: $id) { version } }'),
    ]
    assert {stream_key(request) for request in same} == {stream_key(requests[0])}
    assert {binding_of(request) for request in same} == {binding_of(requests[0])}
