"""The facts in the tables after a mixed load, read past the gateway, with a check of the counters."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from datastore.database import Database
from datastore.dynamodb.codec import Item
from datastore.feeds.likes import is_like
from datastore.keyspace.earthquakes import EARTHQUAKES
from datastore.keyspace.feeds.table import FEED
from datastore.keyspace.matches.fixtures import FIXTURES
from datastore.keyspace.matches.match_follows import MATCH_FOLLOWS
from datastore.keyspace.matches.teams import TEAMS
from datastore.keyspace.photos.table import SPARKS
from datastore.keyspace.sightings import BLIP
from datastore.model.composite_keys import split
from tests.support.feed_changes import items_of
from tests.support.mixed_load import Fact


async def stored_facts(database: Database) -> dict[Fact, Any]:
    """Return the value of each stored fact. Counters and duplicated items must agree."""
    stored, problems = await facts_and_problems(database)
    assert problems == [], problems
    return stored


async def facts_and_problems(database: Database) -> tuple[dict[Fact, Any], list[str]]:
    """Return the value of each stored fact, and the counters and duplicated items that do not agree."""
    problems: list[str] = []
    blip, sparks = await items_of(database, BLIP), await items_of(database, SPARKS)
    facts = [
        *_of_feed(await items_of(database, FEED), problems),
        *_of_sightings(blip, problems),
        *_of_photos(sparks, problems),
        *((("match follow", item["userId"]), item["teamId"]) for item in await items_of(database, MATCH_FOLLOWS)),
        *((("team", item["teamId"]), item["name"]) for item in await items_of(database, TEAMS)),
        *_of_earthquakes(await items_of(database, EARTHQUAKES)),
        *_of_fixtures(await items_of(database, FIXTURES)),
    ]
    problems += [
        f"{fact} is stored {times} times" for fact, times in Counter(fact for fact, _ in facts).items() if times > 1
    ]
    return dict(facts), problems


def _of_feed(items: Sequence[Item], problems: list[str]) -> Iterator[tuple[Fact, Any]]:
    sides: dict[str, set[tuple[str, str]]] = {"FOLLOWING": set(), "FOLLOWER": set()}
    for item in items:
        kind, *rest = split(item["SK"])
        whose = split(item["PK"])[1]
        if is_like(item):
            yield ("like", whose, rest[0]), True
        elif kind == "COMMENT" and "text" in item:  # a tombstone otherwise
            yield ("comment", whose, rest[0]), item["text"]
        elif kind == "META" and item["PK"].startswith("POST#") and "text" in item:  # a tombstone otherwise
            yield ("post", whose), item["text"]
        elif kind == "FOLLOWING":
            sides[kind].add((whose, rest[0]))
            yield ("follow", whose, rest[0]), True
        elif kind == "FOLLOWER":
            sides[kind].add((rest[0], whose))
    problems += [f"{pair} has one side of a follow" for pair in sides["FOLLOWING"] ^ sides["FOLLOWER"]]


def _of_sightings(items: Sequence[Item], problems: list[str]) -> Iterator[tuple[Fact, Any]]:
    sightings = [item for item in items if "description" in item and "reporterId" in item]
    reported = Counter(item["reporterId"] for item in sightings)
    totals = {item["userId"]: item["reportTotal"] for item in items if item.get("reportTotal")}
    if totals != reported:
        problems.append(f"reportTotal: {totals}, and {reported} sightings")
    for description, times in Counter(item["description"] for item in sightings).items():
        yield ("sighting", description), times
    confirmers = [item for item in items if item["SK"].startswith("CONFIRMER#")]
    counts = Counter(item["sightingId"] for item in confirmers)
    for item in sightings:
        if item["confirmationCount"] != counts[item["sightingId"]]:
            problems.append(f"confirmationCount: {item['confirmationCount']}, not {counts[item['sightingId']]}")
    for item in confirmers:
        yield ("confirmation", item["sightingId"], item["userId"]), True


def _of_photos(items: Sequence[Item], problems: list[str]) -> Iterator[tuple[Fact, Any]]:
    kinds: dict[str, list[Item]] = {"FACE": [], "PERSON": [], "IMAGE": []}
    for item in items:
        kinds.setdefault(item["entityType"], []).append(item)
    faces = {split(item["PK"])[1]: item for item in kinds["FACE"]}
    counts = Counter(item["personId"] for item in faces.values())
    on_photos = {face["faceId"]: face["personId"] for item in kinds["IMAGE"] for face in item.get("faces", ())}
    if on_photos != {face: item["personId"] for face, item in faces.items()}:
        problems.append(f"faces on photos: {on_photos}")
    for item in kinds["IMAGE"]:
        if item["imageId"].startswith("photo-"):  # an actor's
            yield ("photo", item["imageId"]), item.get("description")
    for face, item in faces.items():
        yield ("face", face), item["personId"]
    for item in kinds["PERSON"]:
        if item["faceCount"] != counts[item["personId"]]:
            problems.append(f"faceCount: {item['faceCount']}, not {counts[item['personId']]}")
        yield ("person", item["personId"]), item["name"]


def _of_earthquakes(items: Sequence[Item]) -> Iterator[tuple[Fact, Any]]:
    for item in items:
        if item.get("entity") == "EVENT" and item["eventId"].startswith("q"):  # not one that actors read
            yield ("earthquake", item["eventId"]), True


def _of_fixtures(items: Sequence[Item]) -> Iterator[tuple[Fact, Any]]:
    for item in items:
        if item["matchId"].startswith("f-"):  # an actor's
            yield ("fixture", item["matchId"]), item.get("note")
