"""Steps and data for the tests of takeovers."""

from datastore.matches.active_matches import ActiveMatches
from datastore.matches.fixtures import Fixtures
from pipelines.matches.live.poller import TickOutcome
from pipelines.matches.providers.replay import ReplayProvider
from tests.support.cricket_pipeline import PipelineInstance
from tests.support.cricket_process import recording
from tests.support.served import Served


async def events_of_a_whole_run(served: Served, match_id: str = "m1") -> set[str]:
    """Return the ids of all events of the match, from an instance that is not killed."""
    provider = ReplayProvider([recording("whole")], now=served.clock, balls_per_tick=6)
    instance = PipelineInstance(served, provider)
    snapshot = await provider.match("whole")
    assert snapshot is not None
    await Fixtures(served.store(), served.clock()).sync([snapshot.match])
    stored = await Fixtures(served.store(), served.clock()).latest("whole")
    assert stored is not None
    await ActiveMatches(served.store(), served.clock()).register(stored, instance_id="one")
    while await instance.poller.tick("whole") is TickOutcome.CHANGED or not provider.is_over("whole"):
        pass
    events = [event for change in instance.changes for event in change.active.events]
    return {event.event_id.replace("whole:", f"{match_id}:", 1) for event in events}
