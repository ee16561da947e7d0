"""Instances are killed while they work: another one takes over, and no ball is lost."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from datastore.database import StoreOptions
from datastore.matches.active_matches import ActiveMatches
from datastore.matches.fixtures import Fixtures
from datastore.matches.live_state import ActiveMatch
from pipelines.matches.providers.playback import Timeline
from tests.support.cricket_process import recording
from tests.support.forking import Forked
from tests.support.match_takeover import events_of_a_whole_run
from tests.support.served import Listener, Served

KILLS = 20
LOCK_SECONDS = 2.0
UPDATES = """subscription { matchUpdates(matchId: "%s") {
  version isSnapshot changed events { eventId } liveScore { status innings { runs wickets overs } }
} }"""


class Instances:
    """The processes of the pipeline: one polls, and one is ready to take over."""

    def __init__(self, options: StoreOptions, started: float, speed: float, folder: Path) -> None:
        self._arguments = [options.store, options.prefix, "m1"]
        self._clock = [str(started), str(speed), str(LOCK_SECONDS)]
        self._folder = folder
        self._processes: dict[str, Forked] = {}

    async def start(self) -> None:
        """Start an instance and wait until it is ready: its start is not part of the takeover's time."""
        name = f"instance-{time.monotonic_ns()}"
        output = self._folder / name
        self._processes[name] = Forked(
            "tests/support/cricket_process.py", [*self._arguments, name, *self._clock], stdout=output
        )
        async with asyncio.timeout(50):
            while not (output.exists() and "Ready" in output.read_text()):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.01)

    def kill(self, name: str) -> None:
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def kill_all(self) -> None:
        for name in list(self._processes):
            self.kill(name)


@contextmanager
def instances(options: StoreOptions, started: float, speed: float, folder: Path) -> Iterator[Instances]:
    running = Instances(options, started, speed, folder)
    try:
        yield running
    finally:
        running.kill_all()


async def takeover_state(served: Served) -> ActiveMatch | None:
    return await ActiveMatches(served.store(), datetime.now(UTC)).latest("m1")


async def polled_by_another(served: Served, before: str | None) -> ActiveMatch:
    """Wait until another instance has ticked the match, and return the match."""
    async with asyncio.timeout(50):
        while True:
            active = await takeover_state(served)
            if active is not None and active.instance_id != before and active.last_tick_at is not None:
                return active
            await asyncio.sleep(0.02)


async def updates_until_the_result(listener: Listener) -> AsyncIterator[dict[str, Any]]:
    while True:
        update = (await listener.event(timeout=60))["matchUpdates"]
        yield update
        if "RESULT" in update["changed"]:
            return


@pytest.mark.timeout(240)
async def test_no_ball_is_lost_however_often_the_owner_is_killed(
    served: Served, store_options: StoreOptions, tmp_path: Path
) -> None:
    rng = random.Random(17)
    expected = await events_of_a_whole_run(served)
    # The match lasts as long as twenty takeovers, and ends soon after the last.
    seconds = KILLS * (LOCK_SECONDS + 1.0)
    speed = Timeline(recording("m1")).moments[-1] / seconds
    takeovers = []
    await Fixtures(served.store(), served.clock()).sync([recording("m1").match])
    listener = await served.listen(UPDATES % "m1")
    # The snapshot before the first ball: a later one would contain events that this test counts.
    before = (await listener.event())["matchUpdates"]
    watching = asyncio.create_task(_collect(listener))
    with instances(store_options, time.time(), speed, tmp_path) as running:
        await running.start()
        active = await polled_by_another(served, None)
        for _ in range(KILLS):
            await running.start()
            await asyncio.sleep(rng.uniform(0.2, 1.0))
            owner = (await takeover_state(served) or active).instance_id
            assert owner is not None
            running.kill(owner)
            killed = time.monotonic()
            version = (await takeover_state(served) or active).version
            active = await polled_by_another(served, owner)
            takeovers.append(time.monotonic() - killed)
            assert active.version >= version
        updates = [before, *await watching]
    final = await takeover_state(served)

    assert final is not None
    versions = [update["version"] for update in updates]
    assert versions == list(range(versions[0], versions[-1] + 1))
    event_ids = [event["eventId"] for update in updates for event in update["events"]]
    assert len(event_ids) == len(set(event_ids))
    assert set(event_ids) == expected
    assert [(score.runs, score.wickets) for score in final.live.innings] == [
        (score["runs"], score["wickets"]) for score in updates[-1]["liveScore"]["innings"]
    ]
    assert max(takeovers) <= 10 * LOCK_SECONDS, sorted(takeovers)
    await listener.socket.close()


async def _collect(listener: Listener) -> list[dict[str, Any]]:
    return [update async for update in updates_until_the_result(listener)]
