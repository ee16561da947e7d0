"""Events with several USGS ids: each event is stored once, and found by any of its ids (QUAKE-1, QUAKE-5)."""

import asyncio
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from datastore.earthquakes.earthquakes import Earthquakes
from datastore.earthquakes.events import Earthquake
from datastore.keyspace.earthquakes import EARTHQUAKES
from datastore.keyspace.earthquakes import event as event_key
from pipelines.earthquakes.usgs_events import MAX_IDS
from resolvers.shared.global_ids import global_id
from tests.support.earthquake_counts import counting, settled_counts
from tests.support.earthquake_samples import put_raw, quake, scan_all, store
from tests.support.served import Served
from tests.support.usgs_samples import REAL, feature, feed_bytes, needs_real_data
from tests.support.usgs_samples import decoded_quake as judged

US, NN = "us6000a6su", "nn00743624"
BOTH = {"ids": f",{US},{NN},"}


async def insert(served: Served, event: Earthquake) -> bool:
    return await Earthquakes(served.store(), served.clock()).insert(event)


async def stored_event_ids(served: Served) -> dict[str, str | None]:
    """Return the ids in the keys of events. An alias maps to the id of its event."""
    items = [item for item in await scan_all(served) if str(item["pk"]).startswith("EVENT#")]
    return {item["eventId"]: item.get("aliasOf") for item in items if item["sk"] == "EVENT"}


async def ingest_features(served: Served, folder: Path, *features: Any) -> tuple[int, int]:
    assert served.gateway.ingest is not None
    path = folder / "feed.geojson"
    path.write_bytes(feed_bytes(*features))
    summary = await served.gateway.ingest.run(str(path))
    assert summary.error is None
    return summary.upserted, summary.skipped


async def test_an_event_with_a_changed_id_is_stored_once(served: Served, tmp_path: Path) -> None:
    first = await ingest_features(served, tmp_path, feature(id=US, **BOTH))
    second = await ingest_features(served, tmp_path, feature(id=NN, mag=2.6, **BOTH))

    assert (first, second) == ((1, 0), (0, 1))
    assert await stored_event_ids(served) == {US: None, NN: US}


async def test_an_id_that_the_first_report_did_not_list_is_added(served: Served, tmp_path: Path) -> None:
    await ingest_features(served, tmp_path, feature(id=US, ids=f",{US},"))
    await ingest_features(served, tmp_path, feature(id=NN, **BOTH))
    await ingest_features(served, tmp_path, feature(id=NN, ids=f",{NN},"))

    assert await stored_event_ids(served) == {US: None, NN: US}


async def test_an_event_of_another_program_is_found_by_a_further_id(served: Served, tmp_path: Path) -> None:
    await put_raw(served, US)
    counts = await ingest_features(served, tmp_path, feature(id=NN, **BOTH))

    assert counts == (0, 1)
    assert await stored_event_ids(served) == {US: None, NN: US}


async def test_events_that_share_a_further_id_are_stored_separately(served: Served, tmp_path: Path) -> None:
    """The real feed contains this case: pr14099004 and pr14099000."""
    counts = await ingest_features(
        served, tmp_path, feature(id="pr1", ids=",at1,pr1,"), feature(id="pr2", ids=",at1,pr2,")
    )
    again = await ingest_features(
        served, tmp_path, feature(id="pr2", ids=",at1,pr2,"), feature(id="pr1", ids=",at1,pr1,")
    )

    assert (counts, again) == ((2, 0), (0, 2))
    aliases = await stored_event_ids(served)
    assert (aliases["pr1"], aliases["pr2"]) == (None, None)
    assert aliases["at1"] in ("pr1", "pr2")


REPORTS = (quake(US, other_ids=(NN,)), quake(NN, other_ids=(US,)), quake(NN), quake("ci1", other_ids=(NN, US)))


@pytest.mark.parametrize(
    "reports", [*permutations(REPORTS)], ids=lambda reports: "-".join(one.event_id for one in reports)
)
async def test_concurrent_reports_of_one_event_store_it_once(served: Served, reports: tuple[Earthquake, ...]) -> None:
    new = await asyncio.gather(*(insert(served, report) for report in reports))

    assert sum(new) == 1
    ids = await stored_event_ids(served)
    assert sum(alias is None for alias in ids.values()) == 1


@pytest.mark.parametrize("id", [US, NN])
async def test_an_event_is_found_by_any_of_its_ids(served: Served, id: str) -> None:
    await store(served, quake(US, other_ids=(NN,)))
    answer = await served.ask(
        """query ($id: ID!, $node: ID!) {
          earthquake(id: $id) { eventId } node(id: $node) { ... on Earthquake { eventId } } }""",
        {"id": id, "node": global_id("Earthquake", id)},
    )

    assert answer.data == {"earthquake": {"eventId": US}, "node": {"eventId": US}}
    assert len(answer.calls) == (1 if id == US else 2)


async def test_an_alias_of_a_deleted_event_is_no_event(served: Served) -> None:
    await store(served, quake(US, other_ids=(NN,)))
    await served.store().write_all(EARTHQUAKES, deletes=[event_key(US)])
    answer = await served.ask("query ($id: ID!) {earthquake(id: $id) {eventId}}", {"id": NN})

    assert answer.data == {"earthquake": None}


async def test_the_cost_of_an_event_s_ids(served: Served) -> None:
    """An event with one id costs one conditional write. One with several costs a read; if new, a transaction."""
    assert served.gateway.database is not None
    client, made = served.gateway.database.client, list[str]()
    await insert(served, quake("strongest", magnitude=9.0))  # raises the bound of the day
    stop = client.add_call_listener(lambda call: made.append(call.operation))
    costs = []
    try:
        for event in (quake("us1"), quake("us1"), quake(US, other_ids=(NN,)), quake(NN, other_ids=(US,))):
            await insert(served, event)
            costs.append([operation for operation in made if operation != "UpdateItem"])
            made.clear()
    finally:
        stop()

    assert costs == [["PutItem"], ["PutItem"], ["BatchGetItem", "TransactWriteItems"], ["BatchGetItem"]]


async def test_aliases_are_not_listed_counted_or_delivered(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    events = await served.listen("subscription {earthquakeDetected {eventId}}")
    await served.settle(EARTHQUAKES, 1)
    async with counting(served):
        await store(served, quake(US, other_ids=(NN, "ci1")), quake("us2"))
        found = await settled_counts(served)
    listed = await served.ask("{earthquakes {nodes {eventId}}}")

    assert {(await events.event())["earthquakeDetected"]["eventId"] for _ in range(2)} == {US, "us2"}
    assert [day["natural"] for day in found.values()] == [{"4": [2, 4.5]}]
    assert {node["eventId"] for node in listed.data["earthquakes"]["nodes"]} == {US, "us2"}
    # The reader does not treat the alias as a damaged event.
    assert [each.getMessage() for each in caplog.records if each.levelname in ("WARNING", "ERROR")] == []


@pytest.mark.parametrize(
    ("ids", "others"),
    [
        (",us1,nn1,us1,nn1,", ("nn1",)),
        ("nn1", ("nn1",)),
        (", nn1 ,,", ("nn1",)),
        (None, ()),
        (5, ()),
        (f",{'x' * 65},{'y' * 64},", ("y" * 64,)),
        (",".join(f"a{number}" for number in range(40)), tuple(f"a{number}" for number in range(MAX_IDS - 1))),
    ],
)
async def test_the_ids_of_a_feature_are_bounded(ids: Any, others: tuple[str, ...]) -> None:
    assert (await judged(ids=ids)).other_ids == others


@pytest.mark.proof
@pytest.mark.timeout(120)
async def test_events_of_a_real_feed_that_share_an_id_are_stored_separately(served: Served) -> None:
    needs_real_data()
    assert served.gateway.ingest is not None
    summary = await served.gateway.ingest.run(str(REAL / "all_week_2014-04-15.geojson.gz"))
    ids = await stored_event_ids(served)

    assert summary.error is None
    assert (ids["pr14099004"], ids["pr14099000"]) == (None, None)
    assert sum(alias is None for alias in ids.values()) == summary.upserted
