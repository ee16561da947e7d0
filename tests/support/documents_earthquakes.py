"""The items of earthquakes as their document lists them."""

from datetime import timedelta
from typing import Any

from datastore.model.timestamps import day_bucket, epoch_ms
from tests.support.served import NOON

TODAY = day_bucket(NOON)


def event_document(event_id: str, age: timedelta = timedelta(), **changes: Any) -> dict[str, Any]:
    """Return an event with the attributes of the document; `depth` may be null."""
    moment = NOON - age
    bucket = day_bucket(moment)
    return {
        "pk": f"EVENT#{event_id}",
        "sk": "EVENT",
        "entity": "EVENT",
        "eventId": event_id,
        "eventTsMs": epoch_ms(moment),
        "mag": 4.5,
        "place": "10 km SSW of Idyllwild, CA",
        "lat": 33.65,
        "lon": -116.77,
        "depth": 12.1,
        "dayBucket": bucket,
        "gsi1pk": f"DAY#{bucket}",
        "gsi1sk": epoch_ms(moment),
        "source": "USGS",
        "ingestedAt": epoch_ms(NOON),
    } | changes


def log_item(request_id: str, log_type: str, **figures: Any) -> dict[str, Any]:
    return {
        "pk": f"LOG#{TODAY}",
        "sk": f"{epoch_ms(NOON)}#{request_id}",
        "entity": "LOG",
        "logType": log_type,
        "requestId": request_id,
        "timestamp": epoch_ms(NOON),
        "status": 200,
        "latencyMs": 120,
        "ttl": int(NOON.timestamp()) + 7 * 86_400,
    } | figures


INGEST_ID, QUERY_ID = "5d3f5c34-8d5f-4e0a-9c7e-0a4a2a3c5f10", "0b9a1f0e-2a55-4a39-8a8b-6b7d0c6c9b11"
INGEST_FIGURES = {
    "fetched": 9,
    "upserted": 7,
    "skipped": 2,
    "retries": 0,
    "upstreamSize": 5120,
    "upstreamHash": "ab" * 32,
}
QUERY_FIGURES = {
    "starttime": epoch_ms(NOON - timedelta(days=1)),
    "endtime": epoch_ms(NOON),
    "minmagnitude": 2.5,
    "pageSize": 50,
    "resultCount": 1,
    "hasNextToken": False,
    "bucketsScanned": 2,
    "error": "NONE",
}
DOCUMENT = [
    event_document("ci1", timedelta(hours=1)),
    event_document("ci2", timedelta(hours=2), mag=-2.0, depth=None, lat=-90, lon=180),
    event_document("ci3", timedelta(days=1), mag=10.0, depth=0, place="x" * 512),
    event_document("i" * 64, timedelta(days=3), mag=2),
    log_item(INGEST_ID, "INGEST", route="/ingest/recent", **INGEST_FIGURES),
    log_item(QUERY_ID, "QUERY", route="/earthquakes", **QUERY_FIGURES),
    log_item("expired", "INGEST", route="/ingest/recent", ttl=int(NOON.timestamp()) - 1, **INGEST_FIGURES),
]
