"""Active matches, and pipelines that play them, for tests."""

import random
from datetime import date

from msgspec.structs import replace

from datastore.matches.active_matches import ActiveMatches
from datastore.matches.live_state import ActiveMatch
from pipelines.demo.match import demo_match
from pipelines.matches.providers.cricsheet.reader import read
from pipelines.matches.providers.replay import ReplayProvider
from tests.support.cricket_pipeline import PipelineInstance
from tests.support.fixture_steps import put_fixtures
from tests.support.served import Served


def replay(served: Served, *ids: str, balls: int = 6) -> ReplayProvider:
    """Return a provider of invented matches, each with its own score, that plays `balls` balls per tick."""
    recordings = [
        read(demo_match(random.Random(id), number, date(2026, 6, 25)), match_id=id) for number, id in enumerate(ids)
    ]
    return ReplayProvider(recordings, now=served.clock, balls_per_tick=balls)


async def begin(served: Served, *ids: str, balls: int = 6) -> PipelineInstance:
    """Return a pipeline that has registered these matches and is ticked by hand."""
    provider = replay(served, *ids, balls=balls)
    instance = PipelineInstance(served, provider)
    for match in await provider.live():
        await put_fixtures(served, replace(match, version=1))
        await matches(served).register(replace(match, version=1), instance_id="one")
    return instance


def matches(served: Served) -> ActiveMatches:
    return ActiveMatches(served.store(), served.clock())


async def active_match_state(served: Served, match_id: str = "m1") -> ActiveMatch:
    found = await matches(served).latest(match_id)
    assert found is not None
    return found
