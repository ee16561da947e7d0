"""The checks of `make chaos` fail for what they are to find: each kind of loss, repetition and growth."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.chaos.memory import BOUNDS, judge_memory
from tests.support.chaos.report import RunReport, table
from tests.support.chaos.schedule import KILL, LANES, PAUSE, PROCESSES, PlannedFault, Schedule
from tests.support.chaos.subscribers import judge_list, judge_viewers
from tests.support.chaos.traffic import CALM, Phase, Phases, RecordedSpread, SentRequest, failure_counts, longest_outage
from tests.support.chaos.verdict import feed_facts, judge_facts, truth_of_feed
from tests.support.deployment import GATEWAYS
from tests.support.feed_model import FeedModel, ModelPost
from tests.support.followers import ListFollower, Viewer
from tests.support.mixed_load import Truth
from tests.support.remote import LOST, BrokenAnswer, Received, Spread
from tests.support.resuming_clients import SocketClient

# Subscribers


def list_follower(*events: str, resynced_at: Sequence[int] = ()) -> ListFollower:
    follower = ListFollower(SocketClient(None, "", {}), [], 0, str)  # type: ignore[arg-type]
    follower.events, follower.resynced_at, follower.resyncs = [*events], [*resynced_at], len(resynced_at)
    return follower


def test_events_that_arrive_once_and_in_order_are_no_problem() -> None:
    verdict = judge_list([list_follower("a", "b", "c"), list_follower("a", "b", "c")], ["c", "b", "a"])
    assert verdict.problems == []
    assert (verdict.subscribers, verdict.events, verdict.delivered) == (2, 3, 6)


@pytest.mark.parametrize(
    ("received", "problem"),
    [
        (("a", "c"), "lost: ['subscriber 1: b']"),
        (("a", "b"), "lost: ['subscriber 1: c']"),
        (("a", "b", "b", "c"), "doubled: ['subscriber 1: b']"),
        (("a", "c", "b"), "not in order: ['subscriber 1: b']"),
    ],
)
def test_each_problem_of_a_subscriber_is_found(received: tuple[str, ...], problem: str) -> None:
    assert judge_list([list_follower("a", "b", "c"), list_follower(*received)], "abc").problems == [problem]


def test_an_event_that_does_not_exist_is_found() -> None:
    assert judge_list([list_follower("a", "x")], "a").problems == ["lost: ['subscriber 0: unknown event x']"]


def test_an_event_that_no_subscriber_received_is_lost() -> None:
    assert judge_list([list_follower("a"), list_follower("a")], ["a", "b"]).lost == [
        "subscriber 0: b",
        "subscriber 1: b",
    ]


def test_only_events_before_a_resync_may_be_missing() -> None:
    whole = list_follower("a", "b", "c", "d")
    after_resync = judge_list([whole, list_follower("a", "c", "d", resynced_at=[1])], "abcd")
    assert (after_resync.problems, after_resync.resyncs) == ([], 1)
    assert judge_list([whole, list_follower("a", "c", resynced_at=[1])], "abcd").lost == ["subscriber 1: d"]


def test_an_error_that_is_not_temporary_is_found() -> None:
    follower = list_follower("a")
    follower.received.update(["UNAVAILABLE", 1012])
    assert judge_list([follower], "a").problems == []
    follower.received["INTERNAL"] += 1
    assert judge_list([follower], "a").problems == ["errors {'INTERNAL': 1}"]


@pytest.mark.parametrize(
    ("versions", "events", "found"),
    [
        ([1, 2, 3], ["x", "y"], ([], [], [])),
        ([1, 3], ["x", "y"], (["viewer 0: version 2"], [], [])),
        ([1, 2, 2, 3], ["x", "y"], ([], ["viewer 0: version 2"], [])),
        ([1, 3, 2], ["x", "y"], ([], [], ["viewer 0: versions"])),
        ([1, 2], ["x"], (["viewer 0: y"], [], [])),
        ([1, 2], ["x", "y", "y"], ([], ["viewer 0: y"], [])),
    ],
)
def test_each_problem_of_a_viewer_is_found(versions: list[int], events: list[str], found: Any) -> None:
    viewer = Viewer(SocketClient(None, "", {}), [], 0)  # type: ignore[arg-type]
    viewer.versions, viewer.events = versions, events
    verdict = judge_viewers([viewer], {"x", "y"})
    assert (verdict.lost, verdict.doubled, verdict.disordered) == found


# Writes


def chaos_truth(**facts: set[Any]) -> Truth:
    truth = Truth()
    truth.may_be |= {("fact", name): values for name, values in facts.items()}
    return truth


@pytest.mark.parametrize(
    ("possible", "stored", "found"),
    [
        ({1}, 1, (0, 0, 0, 0)),
        ({1, None}, 1, (0, 0, 0, 1)),
        ({1, None}, None, (0, 0, 0, 0)),
        ({1}, None, (1, 0, 0, 0)),
        ({1}, 2, (0, 1, 0, 0)),
        ({1, None}, 2, (0, 1, 0, 0)),
        ({"new"}, "old", (0, 0, 1, 0)),
        ({None}, "removed", (0, 0, 1, 0)),
        ({"new", "old"}, "old", (0, 0, 0, 1)),
    ],
)
def test_a_stored_fact_is_compared_with_what_was_acknowledged(possible: Any, stored: Any, found: Any) -> None:
    verdict = judge_facts(chaos_truth(a=possible), {} if stored is None else {("fact", "a"): stored})
    assert (len(verdict.lost), len(verdict.doubled), len(verdict.others), verdict.unacknowledged) == found


def test_a_fact_that_was_never_written_is_found() -> None:
    assert len(judge_facts(chaos_truth(a={1}), {("fact", "a"): 1, ("fact", "b"): 1}).others) == 1
    assert judge_facts(chaos_truth(a={1}), {("fact", "a"): 1, ("other", "b"): 1}).others == []


def test_the_feed_is_compared_by_what_exists() -> None:
    model = FeedModel()
    model.posts = {
        "p1": ModelPost("ada", "", "PUBLIC", ()),
        "p2": ModelPost("ada", "", "PUBLIC", (), deleted=True),
    }
    model.likes = {("p1", "eve"): "", ("p2", "eve"): ""}
    model.follows = {("eve", "ada"): ""}
    stored: dict[tuple[str, ...], Any] = {
        ("post", "p1"): "text",
        ("like", "p1", "eve"): True,
        ("follow", "eve", "ada"): True,
        ("comment", "p2", "c"): "of a deleted post",
        ("sighting", "x"): 1,
    }
    truth = truth_of_feed(model)
    verdict = judge_facts(truth, feed_facts(model, stored))
    assert (verdict.lost, verdict.doubled, verdict.others) == ([], [], [])
    for fact in [("post", "p1"), ("like", "p1", "eve"), ("follow", "eve", "ada")]:
        less = {other: value for other, value in stored.items() if other != fact}
        assert judge_facts(truth, feed_facts(model, less)).lost == [f"{fact} was acknowledged as {{True}}"]
    assert len(judge_facts(truth, feed_facts(model, {**stored, ("post", "p2"): "text"})).others) == 1


# Requests


def answered_at(ended: float, began: float | None = None, failure: str | None = None) -> SentRequest:
    return SentRequest(ended if began is None else began, ended, failure, False)


def test_an_outage_is_the_time_without_a_success() -> None:
    requests = [answered_at(1), answered_at(2, failure="lost"), answered_at(5), answered_at(5.5), answered_at(9)]
    assert longest_outage(requests, 1.5, 3) == 3.5  # from its beginning
    assert longest_outage(requests, 1.5, 6) == 3.5
    assert longest_outage(requests, 5.2, 5.4) == pytest.approx(0.3)
    assert longest_outage([], 1, 2) == 0


def test_a_request_belongs_to_the_phase_in_which_it_began() -> None:
    phases = Phases([Phase("one", 1, 2), Phase("two", 3, 4)])
    requests = [answered_at(10, began) for began in (0.5, 1.5, 2.5, 3.0)]
    found = phases.by_name(requests)
    assert {name: [one.began for one in of] for name, of in found.items()} == {
        CALM: [0.5, 2.5],
        "one": [1.5],
        "two": [3.0],
    }


async def test_requests_are_recorded_with_their_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Received | Exception] = [
        Received({"data": {"a": 1}}, "200"),
        Received({"errors": [{"extensions": {"code": "UNAVAILABLE"}}]}, "503"),
        Received({"errors": [LOST]}, "ServerDisconnectedError"),
        Received({"data": None, "errors": [{"extensions": {"code": "NOT_FOUND"}}]}, "200"),
        BrokenAnswer(502, b"<html>"),
    ]

    async def send(*_: object) -> Received:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(Spread, "send", send)
    spread = RecordedSpread(None, [], 1.0)
    for _ in range(5):
        await spread.send({"query": "mutation { a }"}, {})
    failed = {"503 UNAVAILABLE": 1, "ServerDisconnectedError": 1, "broken response": 1}
    assert failure_counts(spread.requests) == failed
    assert [request.is_acknowledged_write for request in spread.requests] == [True, False, False, False, False]
    assert len(spread.broken) == 1


async def test_the_end_of_requests_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    over = asyncio.Event()

    async def send(*_: object) -> Received:
        await over.wait()
        return Received({"data": {}}, "200")

    monkeypatch.setattr(Spread, "send", send)
    spread = RecordedSpread(None, [], 1.0)
    before = time.monotonic()
    sending = asyncio.create_task(spread.send({"query": "{ a }"}, {}))
    await asyncio.sleep(0)
    await spread.until_ended(before - 1)
    waiting = asyncio.create_task(spread.until_ended(time.monotonic()))
    await asyncio.sleep(0.02)
    assert not waiting.done()
    over.set()
    await asyncio.gather(waiting, sending)


async def test_probes_wait_for_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    over, sent = asyncio.Event(), 0

    async def send(*_: object) -> Received:
        nonlocal sent
        sent += 1
        if sent == 3:
            over.set()
        await over.wait()
        return Received({"data": {}}, "200")

    monkeypatch.setattr(Spread, "send", send)
    spread = RecordedSpread(None, [], 1.0)
    await spread.probe_until(over)
    assert len(spread.requests) >= 3


# Processes


@pytest.mark.parametrize("minutes", [2.0, 10.0])
def test_every_process_is_killed_and_paused_in_an_order_of_the_seed(minutes: float) -> None:
    lanes = Schedule(1, minutes).lanes
    pairs = {(fault.process, fault.kind) for lane in lanes for fault in lane}
    assert pairs == {(name, kind) for name in PROCESSES for kind in (KILL, PAUSE)}
    assert [{fault.process for fault in lane} for lane in lanes] == [set(lane) for lane in LANES]
    assert lanes == Schedule(1, minutes).lanes
    assert lanes != Schedule(2, minutes).lanes


def test_a_long_run_pauses_for_longer_than_leases_last() -> None:
    def longest(minutes: float) -> float:
        return max(fault.seconds for lane in Schedule(1, minutes).lanes for fault in lane)

    assert longest(2) < 10 < longest(10)


def test_memory_that_grows_without_bound_is_found() -> None:
    name = GATEWAYS[0]
    level = [(second, 120 + min(second, 20) / 2) for second in map(float, range(120))]
    assert judge_memory(name, level) == []
    leak = [(second, megabytes + second) for second, megabytes in level]
    assert judge_memory(name, leak) == [f"{name} grows by 60 MB per minute."]
    assert judge_memory(name, [(0.0, BOUNDS[name] + 1)]) == [f"{name} has 301 MB, more than 300."]
    assert judge_memory(name, []) == []


# The page


def test_a_run_fails_for_each_problem_and_the_page_shows_it() -> None:
    report = RunReport(7, 2)
    report.streams["sightingReported"] = judge_list([list_follower("a", "a")], ["a", "b"])
    report.writes = judge_facts(chaos_truth(a={1}, b={1}), {("fact", "b"): 2})
    report.conclude()
    assert [problem.partition(":")[0] for problem in report.problems] == [
        "lost write",
        "doubled write",
        *["sightingReported"] * 2,
    ]
    text = report.text()
    assert "0 acknowledged writes: 1 lost, 1 doubled, 0 differing" in text
    assert "FAILED, 4 problems" in text
    assert all(f"- {problem}" in text for problem in report.problems)

    passed = RunReport(7, 2, requests=[SentRequest(1, 2, None, True)])
    passed.conclude()
    assert passed.text().endswith("Passed.")
    assert "1 acknowledged writes: 0 lost" in passed.text()


def test_columns_of_figures_are_on_the_right() -> None:
    assert table(["name", "times", "codes"], [["redis", 1_200, ""], ["engine", 7, "2 lost"]]).splitlines() == [
        "| name   | times | codes  |",
        "| ------ | ----: | ------ |",
        "| redis  | 1,200 |        |",
        "| engine |     7 | 2 lost |",
    ]


def test_a_fault_is_named_by_its_kind_and_process() -> None:
    assert PlannedFault("redis", KILL, 1.0).name == "kill redis"
