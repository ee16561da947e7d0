"""The contract of earthquakes: each field with its access patterns, callers, calls, and an operation."""

from datastore.model.access_patterns import Who
from tests.support.contract.pages import Field, Followed, NodeType, Page
from tests.support.served import Served


async def prepare_earthquakes(served: Served) -> dict[str, str]:
    # The estimate of the cost reads the statistics once a minute.
    assert (await served.ask("{ earthquakes { nodes { id } } }", user="ada")).errors is None
    return {}


PAGE = Page(
    name="earthquakes",
    prepare=prepare_earthquakes,
    fields=(
        # Besides the puts: the state of the last ingest is read and stored.
        # The bound of the day's magnitudes is raised before an event is stored.
        # Two events and the state of the feed are put; the request log is written in the background.
        Field(
            "ingestEarthquakes",
            ("QUAKE-1", Who.SYSTEM, {"GetItem", "PutItem", "UpdateItem"}),
            'mutation { ingestEarthquakes(feed: "<feed>") { error } }',
            ["GetItem earthquake-events", *["PutItem earthquake-events"] * 3, "UpdateItem earthquake-events"],
        ),
        Field(
            "earthquakes",
            ("QUAKE-2", Who.ANY, {"Query"}),
            '{ earthquakes(from: "2026-06-25T00:00:00Z", minMagnitude: 1) { nodes { place } } }',
            ["Query earthquake-events.TimeOrderedIndex"],
        ),
        Field(
            "requestLogs",
            ("QUAKE-4", Who.ADMIN, {"Query"}),
            "{ requestLogs(type: QUERY) { nodes { route } } }",
            ["Query earthquake-events"],
        ),
        Field(
            "earthquake",
            ("QUAKE-5", Who.ANY, {"GetItem", "BatchGetItem"}),
            '{ earthquake(id: "x") { place } }',
            ["GetItem earthquake-events"],
        ),
        Field(
            "earthquakeStatistics",
            ("QUAKE-6", Who.ANY, {"GetItem", "BatchGetItem", "Query"}),
            "{ earthquakeStatistics(by: REGION) { earthquakeCount groups { region earthquakeCount } } }",
            ["GetItem earthquake-events", "Query earthquake-events"],
        ),
    ),
    subscriptions=(
        Followed(
            "earthquakeDetected",
            ("QUAKE-S1", Who.ANY, set()),
            "earthquakeDetected { place }",
        ),
    ),
    cursors={
        "earthquakes": (
            "QUAKE-2",
            '{"kind":"EARTHQUAKE","minMagnitude":1.0,"order":"ascending",'
            '"window":["2026-06-24T00:00:00.000Z","2026-06-26T00:00:00.000Z"]}',
            '{"kind":"EARTHQUAKE","minMagnitude":null,"window":[null,null]}',
        ),
        "requestLogs": (
            "QUAKE-4",
            '{"day":"2026-06-24","order":"ascending","type":"QUERY"}',
            '{"day":null,"type":null}',
        ),
    },
    nodes=(NodeType("Earthquake", 'earthquake(id: "us1") { id }'),),
)
