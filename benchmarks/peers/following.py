"""The events of the tables for the Python peers, from the tables' streams.

The streams are read with the gateway's client, which costs the peers less than an SDK would.
"""

import argparse
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from datastore.change_streams.change import Change
from datastore.change_streams.change_feed import ChangeFeed
from datastore.database import StoreOptions, open_database
from datastore.keyspace.earthquakes import EARTHQUAKES
from datastore.keyspace.matches.active_matches import ACTIVE_MATCHES
from datastore.queues import QueueLimits

MAX_WAITING = 1000


@dataclass(frozen=True, slots=True)
class PeerOptions:
    """The command-line options of a peer."""

    store: str
    port: int
    table: str
    #: The poll interval of the stream in seconds.
    interval: float
    #: A variant of the peer, which interprets it.
    variant: str

    @classmethod
    def parsed(cls) -> "PeerOptions":
        arguments = argparse.ArgumentParser()
        arguments.add_argument("--store", required=True)
        arguments.add_argument("--port", type=int, required=True)
        arguments.add_argument("--table", required=True)
        arguments.add_argument("--interval", type=float, required=True)
        arguments.add_argument("--variant", default="")
        return cls(**vars(arguments.parse_args()))


async def events(options: PeerOptions) -> AsyncIterator[Mapping[str, Any]]:
    """Yield each new event of the table with all fields of the table's subscription."""
    tables = {ACTIVE_MATCHES.name: (ACTIVE_MATCHES, match_update), EARTHQUAKES.name: (EARTHQUAKES, earthquake)}
    table, event = tables[options.table]
    async with open_database(StoreOptions(store=options.store)) as database:
        feed = ChangeFeed(database.client, poll_interval=options.interval)
        async with feed.follow(table, _image, limits=QueueLimits(max_events=MAX_WAITING)) as images:
            async for image in images:
                yield event(image)
        await feed.aclose()


def _image(change: Change) -> Mapping[str, Any] | None:
    is_new = change.table == ACTIVE_MATCHES.name or (change.kind == "INSERT" and change.keys["sk"] == "EVENT")
    return change.new if is_new else None


def match_update(image: Mapping[str, Any]) -> Mapping[str, Any]:
    innings = orjson.loads(image["previousScore"]).get("innings", [])
    return {
        "matchId": image["matchId"],
        "version": int(image["version"]),
        "changed": [part.upper() for part in image["changed"]],
        "liveScore": {"status": image["previousStatus"], "innings": [*map(_total, innings)]},
    }


def _total(innings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the total of an innings. Defaults are not stored."""
    overs, balls = innings.get("completed_overs", 0), innings.get("balls", 0)
    return {
        "runs": innings.get("runs", 0),
        "wickets": innings.get("wickets", 0),
        "overs": f"{overs}.{balls}" if balls else f"{overs}",
    }


def earthquake(image: Mapping[str, Any]) -> Mapping[str, Any]:
    return {
        "eventId": image["eventId"],
        "magnitude": float(image["mag"]),
        "place": image["place"],
        "latitude": float(image["lat"]),
        "longitude": float(image["lon"]),
    }
