"""The provider of invented matches."""

from datetime import timedelta

from datastore.matches.cricket import MatchPhase
from pipelines.demo.matches import DemoProvider
from tests.support.served import Served


async def test_all_demo_providers_play_the_same_matches(served: Served) -> None:
    first, second = DemoProvider(served.clock), DemoProvider(served.clock)
    early = {match.match_id for match in await first.live()}
    served.clock.forward(minutes=4)

    assert [match.match_id for match in await first.live()] == [match.match_id for match in await second.live()]
    assert early & {match.match_id for match in await second.live()}
    for match in await first.live():
        assert await first.match(match.match_id) == await second.match(match.match_id)
    assert await first.match("demo-x") is None
    assert await first.match("other") is None


async def test_the_demo_has_past_live_and_future_matches(served: Served) -> None:
    provider = DemoProvider(served.clock)
    (league,) = await provider.leagues()
    around = served.clock() - timedelta(days=7), served.clock() + timedelta(days=30)

    found = [match async for match in provider.fixtures([league.league_id], *around)]

    assert {match.phase for match in found} >= {MatchPhase.FINISHED, MatchPhase.LIVE, MatchPhase.UPCOMING}
    assert len(found) == 30
    assert league.current_season_id is not None
    rows = await provider.team_seasons(league.current_season_id)
    assert sum(row.won or 0 for row in rows) == sum(match.result is not None for match in found if match.result)
