"""The playing of matches through the pipeline into a subscriber, for tests."""

import asyncio
from collections.abc import Sequence
from contextlib import asynccontextmanager
from typing import Any

from datastore.keyspace.matches.active_matches import ACTIVE_MATCHES
from datastore.matches.active_matches import ActiveMatches
from datastore.matches.cricket import Match
from datastore.matches.fixtures import Fixtures
from datastore.matches.live_state import ActiveMatch
from datastore.matches.teams import Team, Teams
from pipelines.matches.live.poller import TickOutcome
from pipelines.matches.providers.replay import ReplayProvider
from tests.support.cricket_pipeline import PipelineInstance
from tests.support.served import Listener, Served

Json = dict[str, Any]

UPDATES = """
subscription {
  matchUpdates(matchId: "%s") {
    version isSnapshot conflatedCount changed
    events {
      eventId kind text inningsNumber score value playerId player
      ball { ballId inningsNumber overNumber batter nonStriker bowler }
    }
    liveScore {
      version status phase note
      innings {
        number teamId runs wickets overs legalBalls isSuperOver declared forfeited
        extras { byes legByes wides noBalls penalty }
      }
      batting { name runs balls isOnStrike }
      bowling { name overs runs wickets }
      target { runs overs method }
      result { kind text winnerTeamId }
      recentBalls { ballId runs }
    }
  }
}
"""
SCORECARDS = """
query ($id: ID!) {
  match(id: $id) {
    version phase
    result { text winnerTeamId decidedByTiebreak }
    innings {
      number teamId runs wickets overs legalBalls isSuperOver declared forfeited
      extras { byes legByes wides noBalls penalty }
    }
    scorecards {
      inningsNumber
      batting { name runs balls fours sixes status dismissal }
      bowling { name overs maidens runs wickets wides noBalls }
      fallOfWickets { name runs }
    }
    liveScore {
      version status phase note
      innings {
        number teamId runs wickets overs legalBalls isSuperOver declared forfeited
        extras { byes legByes wides noBalls penalty }
      }
      batting { name runs balls isOnStrike }
      bowling { name overs runs wickets }
      target { runs overs method }
      result { kind text winnerTeamId }
      recentBalls { ballId runs }
    }
  }
}
"""


class Subscriber:
    """A collector of the results of a subscription, which runs beside the test."""

    def __init__(self, listener: Listener, snapshot: Json) -> None:
        self.snapshot = snapshot
        self.updates: list[Json] = []
        self._listener = listener
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        while True:
            self.updates.append((await self._listener.event(timeout=50))["matchUpdates"])

    async def at(self, version: int) -> None:
        """Wait until the subscriber has received a version."""
        async with asyncio.timeout(50):
            while not self.updates or self.updates[-1]["version"] < version:
                if self._reading.done():
                    self._reading.result()
                await asyncio.sleep(0.005)

    async def stop(self) -> None:
        self._reading.cancel()
        await asyncio.wait([self._reading])
        await self._listener.socket.close()

    @property
    def events(self) -> list[Json]:
        return [event for update in self.updates for event in update["events"]]

    @property
    def last(self) -> Json:
        return self.updates[-1]


@asynccontextmanager
async def subscribed(served: Served, match_id: str) -> Any:
    """Return a subscriber that has received its snapshot."""
    listener = await served.listen(UPDATES % match_id)
    snapshot = (await listener.event())["matchUpdates"]
    assert snapshot["isSnapshot"]
    await served.settle(ACTIVE_MATCHES)
    subscriber = Subscriber(listener, snapshot)
    try:
        yield subscriber
    finally:
        await subscriber.stop()


async def list_match(served: Served, match: Match, teams: Sequence[Team] = (), owner: str = "one") -> ActiveMatch:
    """Register a match in the name of an instance."""
    now = served.clock()
    await Teams(served.store(), now).put_all(teams)
    await Fixtures(served.store(), now).sync([match])
    stored = await Fixtures(served.store(), now).latest(match.match_id)
    assert stored is not None
    return await ActiveMatches(served.store(), now).register(stored, instance_id=owner)


async def play_to_the_end(instance: PipelineInstance, provider: ReplayProvider, match_id: str) -> None:
    """Tick until the match is over and a tick changes nothing."""
    for _ in range(10_000):
        tick = await instance.poller.tick(match_id)
        assert tick in (TickOutcome.CHANGED, TickOutcome.UNCHANGED)
        if provider.is_over(match_id) and tick is TickOutcome.UNCHANGED:
            return
    raise AssertionError("The match does not end.")


async def current_state(served: Served, match_id: str) -> ActiveMatch:
    active = await ActiveMatches(served.store(), served.clock()).latest(match_id)
    assert active is not None
    return active
