"""The alerts of the whole pipeline, from the provider to the pushes."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator
from typing import Any

import orjson

from datastore.matches.live_activities import LiveActivities
from pipelines.matches.live.poller import LiveChange
from pipelines.matches.pipeline import CricketPipeline
from pipelines.matches.push.push_service import LoggedPushService, Push, PushSummary
from tests.support.orchestrator import ScriptedReplay
from tests.support.served import Served


class RecordingDelivery(LoggedPushService):
    """A delivery that records the pushes."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    async def send_all(self, pushes: AsyncIterable[Push]) -> PushSummary:
        async def noted() -> AsyncIterator[Push]:
            async for push in pushes:
                self.sent.append(orjson.loads(push.notification.body)["aps"])
                yield push

        return await super().send_all(noted())


async def test_phones_ring_only_for_the_events_that_a_version_allows(served: Served) -> None:
    changes: list[LiveChange] = []
    phones, provider = RecordingDelivery(), ScriptedReplay(served, "m1", balls_per_tick=24)
    pipeline = CricketPipeline(
        provider, served.store, phones, instance_id="one", now=served.clock, on_change=changes.append
    )
    async with pipeline.open():
        await pipeline.sync()
        (match,) = await provider.live()
        await LiveActivities(served.store(), served.clock()).register(match, "ada", "phone", "ab" * 32)
        await pipeline.orchestrator.start(match)
        async with asyncio.timeout(50):
            while not changes:  # noqa: ASYNC110 - the condition has no event
                await asyncio.sleep(0.01)
        for _ in range(8):
            await pipeline.poller.tick("m1")

    texts = {event.text for change in changes for event in change.active.events}
    rung = {event.text for change in changes for event in change.active.events if event.event_id in change.rings}
    alerts = [aps["alert"]["body"] for aps in phones.sent if "alert" in aps]
    assert alerts
    assert set(alerts) <= rung < texts
    versions = [aps["content-state"]["version"] for aps in phones.sent]
    assert versions == sorted(set(versions))
