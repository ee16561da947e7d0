"""The Prometheus metrics of the poller of live matches."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from pipelines.matches.live.metrics import PollMetrics
from tests.support.command_line import surroundings
from tests.support.cricket_pipeline import PipelineInstance
from tests.support.forking import Forked
from tests.support.orchestrator import ScriptedReplay
from tests.support.ports import free_port
from tests.support.served import Clock, Served
from tests.support.until import until


class Figures:
    def __init__(self, clock: Clock) -> None:
        self._registry = CollectorRegistry()
        self.metrics = PollMetrics(self._registry, lambda: clock().timestamp())

    def of(self, name: str, **labels: str) -> float | None:
        return self._registry.get_sample_value(f"cricket_{name}", labels)


@pytest.fixture
def figures(clock: Clock) -> Figures:
    return Figures(clock)


async def test_a_process_that_does_not_poll_exports_no_sample(figures: Figures) -> None:
    """The alert is for absent metrics."""
    assert figures.of("live_age_seconds") is None
    assert figures.of("ticks_total", outcome="changed") is None


async def test_the_age_of_the_oldest_response_is_exported(served: Served, clock: Clock, figures: Figures) -> None:
    provider = ScriptedReplay(served, "m1", "m2")
    instance = PipelineInstance(served, provider, metrics=figures.metrics, tick_seconds=0.01, reconcile_seconds=0.02)
    running = asyncio.create_task(instance.orchestrator.run())
    try:
        await until(
            lambda: figures.of("matches_polled") == 2 and (figures.of("ticks_total", outcome="changed") or 0) > 3
        )
        assert figures.of("live_age_seconds") == figures.of("tick_age_seconds") == 0

        provider.unknown = {"m2"}
        await until(lambda: (figures.of("ticks_total", outcome="unknown") or 0) > 0)
        clock.forward(seconds=7)
        await until(lambda: figures.of("live_age_seconds") == 0)  # the provider still lists the live matches
        assert figures.of("tick_age_seconds") == 7

        provider.listed = None
        clock.forward(seconds=5)
        await asyncio.sleep(0.1)
        assert figures.of("live_age_seconds") == 5
    finally:
        running.cancel()
        await asyncio.wait([running])
    assert figures.of("matches_polled") == figures.of("tick_age_seconds") == 0


@pytest.fixture
def polling(tmp_path: Path) -> Iterator[str]:
    """Run `pipeline cricket` with invented matches, and return the URL of its metrics."""
    port = free_port()
    environment = surroundings(GATEWAY_METRICS_PORT=str(port), GATEWAY_DATA_DIR=str(tmp_path))
    log = tmp_path / "log"
    process = Forked(
        "gateway.py", ["pipeline", "cricket", "--matches", "demo", "--memory"], environment, stdout=log, stderr=log
    )
    yield f"http://127.0.0.1:{port}/metrics"
    process.send_signal(15)
    assert process.wait(15) == 0, log.read_text()


async def test_the_command_exports_metrics(polling: str) -> None:
    async with aiohttp.ClientSession() as http, asyncio.timeout(50):
        while True:
            with suppress(aiohttp.ClientConnectionError):
                async with http.get(polling) as response:
                    text = await response.text()
                if 'cricket_ticks_total{outcome="changed"} 0.0' not in text and "cricket_live_age_seconds " in text:
                    break
            await asyncio.sleep(0.1)
    assert "\ncricket_matches_polled 0.0\n" not in text
