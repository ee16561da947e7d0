"""Fields of a fixture that an operator set keep their values despite the source's reports until cleared (FIX-5)."""

import asyncio
import random
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from datastore.keyspace.matches import fixtures as keys
from datastore.keyspace.matches.fixtures import fixture
from datastore.matches.cricket import Match, MatchSnapshot, Venue
from datastore.matches.fixture_cache import FixtureCache
from datastore.matches.fixtures import Fixtures
from datastore.matches.operator_fields import OperatorConflict
from pipelines.matches.live.poller import TickOutcome
from tests.support.active_matches import active_match_state, begin
from tests.support.cricket_pipeline import PipelineInstance
from tests.support.fixture_steps import ask_system, code_and_field, planned_match, put_fixtures
from tests.support.served import NOON, Served

UPDATE = """mutation ($id: ID!, $input: UpdateFixtureInput!) { updateFixture(id: $id, input: $input) {
  note round status phase venue { name } operatorFields } }"""
SHOWN = '{ match(id: "m1") { note round status phase startTime venue { name } operatorFields liveScore { note } } }'


async def update_fixture_fields(served: Served, **changes: Any) -> Any:
    answer = await ask_system(served, UPDATE, {"id": "m1", "input": changes})
    assert answer.errors is None, answer.errors
    return answer.data["updateFixture"]


async def shown_match(served: Served) -> Any:
    answer = await served.ask(SHOWN)
    assert answer.errors is None, answer.errors
    return answer.data["match"]


async def tick(instance: PipelineInstance) -> TickOutcome:
    return await instance.poller.tick("m1")


async def test_a_note_on_a_live_match_stays_and_reaches_the_live_score(served: Served) -> None:
    instance = await begin(served, "m1")
    await tick(instance)
    before = (await active_match_state(served)).version

    set_ = await update_fixture_fields(served, note="Floodlight failure", venue={"name": "Elsewhere"})
    for _ in range(4):
        assert await tick(instance) is TickOutcome.CHANGED
        match = await shown_match(served)
        assert (match["note"], match["liveScore"]["note"]) == ("Floodlight failure", "Floodlight failure")

    assert (set_["note"], set_["operatorFields"]) == ("Floodlight failure", ["NOTE", "VENUE"])
    assert match["venue"] == {"name": "Elsewhere"}
    assert match["operatorFields"] == ["NOTE", "VENUE"]
    assert (await active_match_state(served)).version == before + 4


async def test_the_next_tick_publishes_a_note_although_the_provider_has_nothing_new(served: Served) -> None:
    instance = await begin(served, "m1", balls=600)
    provider: Any = instance.poller._provider
    while not provider.is_over("m1"):
        await tick(instance)
    assert await tick(instance) is TickOutcome.UNCHANGED
    note = (await shown_match(served))["note"]

    await update_fixture_fields(served, note="Result under review")
    assert await tick(instance) is TickOutcome.CHANGED
    change = instance.changes[-1].active
    cleared = await update_fixture_fields(served, clear=["NOTE"])
    assert await tick(instance) is TickOutcome.CHANGED

    assert ([part.value for part in change.changed], change.live.note) == (["note"], "Result under review")
    assert (cleared["note"], cleared["operatorFields"]) == (note, [])
    assert (await shown_match(served))["liveScore"]["note"] == note


async def test_an_operator_removes_a_field_and_clears_the_override(served: Served) -> None:
    reported = planned_match(note="Rain is near", round="Final", start=NOON + timedelta(days=3))
    await put_fixtures(served, reported)
    await FixtureCache(served.store(), NOON).put(MatchSnapshot(reported))

    removed = await update_fixture_fields(served, note=None)
    await put_fixtures(served, replace(reported, round="Semi-final"))
    synced = await shown_match(served)
    cleared = await update_fixture_fields(served, clear=["NOTE"])

    assert (removed["note"], removed["operatorFields"]) == (None, ["NOTE"])
    assert (synced["note"], synced["round"]) == (None, "Semi-final")
    assert (cleared["note"], cleared["operatorFields"]) == ("Rain is near", [])


async def test_a_cleared_field_follows_the_next_sync_without_a_report_of_the_source(served: Served) -> None:
    await put_fixtures(served, planned_match(note="Rain is near"))
    await update_fixture_fields(served, note="No play today")

    cleared = await update_fixture_fields(served, clear=["NOTE", "ROUND"])
    await put_fixtures(served, planned_match(note="Play at three"))

    assert (cleared["note"], cleared["operatorFields"]) == ("No play today", [])
    assert (await shown_match(served))["note"] == "Play at three"


async def test_a_status_of_an_operator_sets_its_phase(served: Served) -> None:
    instance = await begin(served, "m1")

    await update_fixture_fields(served, status="Delayed")
    assert await tick(instance) is TickOutcome.CHANGED

    match = await shown_match(served)
    assert (match["status"], match["phase"]) == ("Delayed", "INTERRUPTED")


async def test_a_field_cannot_be_cleared_and_set_in_the_same_call(served: Served) -> None:
    await put_fixtures(served, planned_match())

    both = await ask_system(served, UPDATE, {"id": "m1", "input": {"clear": ["NOTE"], "note": "x"}})
    unknown = await ask_system(served, UPDATE, {"id": "m2", "input": {"clear": ["NOTE"]}})

    assert code_and_field(both) == ("BAD_USER_INPUT", "clear")
    assert unknown.codes == ["NOT_FOUND"]


async def test_a_tick_that_an_operator_overtakes_writes_nothing(served: Served) -> None:
    instance = await begin(served, "m1")
    await tick(instance)
    version = (await active_match_state(served)).version
    seen = await Fixtures(served.store(), NOON).latest("m1")
    assert seen is not None
    await update_fixture_fields(served, note="Floodlight failure")

    with pytest.raises(OperatorConflict):
        await Fixtures(served.store(), NOON).write_live(seen)

    assert (await shown_match(served))["note"] == "Floodlight failure"
    assert (await active_match_state(served)).version == version


FACTS = {
    "note": lambda rng: rng.choice([None, "a", "b"]),
    "round": lambda rng: rng.choice([None, "1", "2"]),
    "venue": lambda rng: rng.choice([None, {"name": "A"}, {"name": "B"}]),
}


@pytest.mark.parametrize("seed", range(6))
async def test_concurrent_writes_lose_no_field_of_an_operator(served: Served, seed: int) -> None:
    """Run ticks, syncs and an operator concurrently: each field held by the operator has the operator's last value."""
    rng = random.Random(seed)
    start = rng.choice([NOON, NOON + timedelta(days=9)])
    await put_fixtures(served, planned_match(start=start))
    word: dict[str, Any] = {}

    def source() -> Match:
        venue = rng.choice([None, Venue("S")])
        return planned_match(start=start, note="source", round="source", venue=venue)

    async def operate() -> None:
        for _ in range(6):
            if word and rng.random() < 0.3:
                name = rng.choice(sorted(word))
                await update_fixture_fields(served, clear=[name.upper()])
                del word[name]
            else:
                name = rng.choice(sorted(FACTS))
                value = FACTS[name](rng)
                await update_fixture_fields(served, **{name: value})
                word[name] = value

    async def sync() -> None:
        for _ in range(6):
            await Fixtures(served.store(), NOON).sync([source()])

    async def poll() -> None:
        for _ in range(6):
            fixtures = Fixtures(served.store(), NOON)
            stored = await fixtures.latest("m1")
            assert stored is not None
            with suppress(OperatorConflict):  # the next poll reads the stored fields
                await fixtures.write_live(replace(stored, note="poller", fence=1, version=stored.version + 1))

    await asyncio.gather(operate(), sync(), sync(), poll())
    await Fixtures(served.store(), NOON).sync([source()])

    match = await shown_match(served)
    assert match["operatorFields"] == [name.upper() for name in ("round", "note", "venue") if name in word]
    assert {name: match[name] for name in word} == word
    item = await served.store().get(keys.SYNC_FIXTURES, fixture("m1"))
    assert item is not None
    assert set(item.get("operatorFields", ())) == set(word)
