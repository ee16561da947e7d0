"""The daily statistics of earthquakes for tests, as stored and as counted by simple code."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from datastore.change_streams.change import Change
from datastore.dynamodb.codec import Item
from datastore.earthquakes.day_bounds import is_natural
from datastore.earthquakes.regions import region_of
from datastore.earthquakes.statistics import magnitude_class
from pipelines.earthquakes.statistics import EarthquakeStatisticsPipeline
from tests.support.earthquake_samples import scan_all
from tests.support.served import NOON, Served

Counts = dict[str, dict[str, dict[str, list[float]]]]


async def stored_counts(served: Served) -> Counts:
    """Return the stored statistics by day and kind, without days that have no events."""
    items = await scan_all(served)
    found: Counts = {}
    for item in items:
        if str(item["pk"]).startswith("STATISTICS#"):
            found[item["sk"]] = {
                "natural": item.get("byClass", {}),
                "other": item.get("othersByClass", {}),
            }
    for item in items:
        if str(item["pk"]).startswith("REGIONS#"):
            found[item["sk"]]["regions"] = item["byRegion"]
    return {day: kinds for day, kinds in found.items() if kinds["natural"] or kinds["other"]}


async def plain_counts(served: Served) -> Counts:
    """Return the same statistics, counted from the stored events."""
    found: dict[str, Any] = defaultdict(lambda: {"natural": {}, "other": {}, "regions": {}})
    for item in await scan_all(served):
        if item.get("entity") != "EVENT" or item["sk"] != "EVENT":
            continue
        kinds, magnitude = found[item["gsi1pk"].removeprefix("DAY#")], item["mag"]
        natural = is_natural(item.get("type"))
        _add(kinds["natural" if natural else "other"], str(magnitude_class(magnitude)), magnitude)
        if natural:
            _add(kinds["regions"], region_of(item["lat"], item["lon"]).value, magnitude)
    return dict(found)


def _add(groups: dict[str, list[float]], name: str, magnitude: float) -> None:
    count, greatest = groups.get(name, [0, magnitude])
    groups[name] = [count + 1, max(greatest, magnitude)]


@asynccontextmanager
async def counting(served: Served) -> AsyncIterator[EarthquakeStatisticsPipeline]:
    """Run the consumer of the stream while the context is entered."""
    pipeline = served.gateway.background.earthquake_statistics()
    task = asyncio.create_task(pipeline.run())
    try:
        yield pipeline
    finally:
        task.cancel()
        await asyncio.wait([task])


async def settled_counts(served: Served) -> Counts:
    """Wait until the statistics agree with the stored events. Return them."""
    async with asyncio.timeout(50):
        while (found := await stored_counts(served)) != await plain_counts(served):  # noqa: ASYNC110 - it is over the wire
            await asyncio.sleep(0.02)
    return found


def changes_of(items: Iterable[tuple[Item | None, Item | None]]) -> list[Change]:
    """Return the changes with these old and new items."""
    return [_change(number, old, new) for number, (old, new) in enumerate(items)]


def _change(number: int, old: Item | None, new: Item | None) -> Change:
    item = new or old or {}
    kind: Any = "INSERT" if old is None else "REMOVE" if new is None else "MODIFY"
    keys = {"pk": item["pk"], "sk": item["sk"]}
    return Change("earthquake-events", kind, keys, old, new, str(number), NOON, by_ttl=False)
