"""The photo library at 25 items: the DynamoDB calls and CPU of queries, uploads, events and deletions."""

import asyncio
import gc
import itertools
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import aiohttp

from benchmarks.feed_data import engine_on_file
from benchmarks.measuring import percentile
from benchmarks.photos_data import (
    FACES_EACH,
    GROUP_PERSONS,
    GROUP_SIZE,
    GROUP_USER,
    LIMIT,
    PHOTOS,
    PICTURE,
    POPULAR_PERSON,
    UPLOADER,
    USERS,
    fill,
    image_id,
    limited,
    person_id,
    picture,
    taken_at,
)
from benchmarks.photos_server import serving_photos
from benchmarks.server import Server, Usage

SIZE = 25
REQUESTS = 20
DELETED = 5
CONCURRENT = 50
EVENTS = 25

Body = Mapping[str, Any]
Action = Callable[[Server, int], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Step:
    """An action that is measured."""

    name: str
    #: Takes the number of the call, and checks the response.
    action: Action
    #: The sequential calls in a round.
    times: int = REQUESTS


@dataclass(slots=True)
class PhotoCost:
    """The cost of one action, by round."""

    name: str
    #: CPU milliseconds.
    cpu: list[float] = field(default_factory=list)
    #: The latencies of all calls.
    seconds: list[float] = field(default_factory=list)
    calls: list[Mapping[str, float]] = field(default_factory=list)
    read_units: list[float] = field(default_factory=list)
    write_units: list[float] = field(default_factory=list)

    def add(self, used: Usage, seconds: Sequence[float]) -> None:
        total = len(seconds)
        self.cpu.append(used.cpu * 1000 / total)
        self.seconds += seconds
        self.calls.append({operation: number / total for operation, number in used.calls.items()})
        self.read_units.append(used.units / total)
        self.write_units.append(used.write_units / total)

    @property
    def figures(self) -> dict[str, Any]:
        """The medians over the rounds, also of calls: a background job of the gateway may run during a round."""
        operations = sorted(set(itertools.chain.from_iterable(self.calls)))
        calls = {name: median(calls.get(name, 0) for calls in self.calls) for name in operations}
        return {
            "name": self.name,
            "cpu_ms": median(self.cpu),
            "p50_ms": percentile(self.seconds, 0.50) * 1000,
            "p99_ms": percentile(self.seconds, 0.99) * 1000,
            "read_units": median(self.read_units),
            "write_units": median(self.write_units),
            "calls": {name: number for name, number in calls.items() if number},
        }


async def measure(rounds: int, effort: float) -> list[PhotoCost]:
    """Measure the queries, then the writes, each after a discarded round."""
    async with engine_on_file() as database:
        assert database.engine is not None
        group_photos = await fill(database.client, (rounds + 1) * _times(DELETED, effort), rounds + 1)
        async with serving_photos(database.engine.endpoint) as server:
            queries = await _rounds(server, [*_queries(await _second_page(server))], rounds, effort)
            written = await _rounds(server, [*_writes(group_photos)], rounds, effort)
            await _check_gone(server, group_photos)
            return [*queries, *written]


def _times(times: int, effort: float) -> int:
    return max(int(times * min(effort, 1.0)), 1)


async def _rounds(server: Server, steps: Sequence[Step], rounds: int, effort: float) -> list[PhotoCost]:
    costs = [(step, itertools.count(), PhotoCost(step.name)) for step in steps]
    for number in range(rounds + 1):
        for step, numbers, cost in costs:
            used, seconds = await _round(server, step, numbers, _times(step.times, effort))
            if number:
                cost.add(used, seconds)
    return [cost for *_, cost in costs]


async def _round(server: Server, step: Step, numbers: Iterator[int], times: int) -> tuple[Usage, list[float]]:
    gc.collect()
    before, seconds = await server.usage(), []
    for number in itertools.islice(numbers, times):
        began = time.perf_counter()
        await step.action(server, number)
        seconds.append(time.perf_counter() - began)
    return (await server.usage()).since(before), seconds


def _check(right: bool, name: str) -> None:
    if not right:
        raise RuntimeError(f"The response to {name} is wrong or incomplete.")


BARE = "imageId userId takenAt createdAt description tags personIds contentType size width height"
FACES = "faces { faceId personId confidence boundingBox { left top width height } }"
SHOWN = f"{BARE} persons {{ personId name faceCount }} {FACES}"
OWNED = f"{SHOWN} user {{ userId displayName }}"
PAGE_INFO = "pageInfo { hasNextPage endCursor }"
PHOTO = f"query ($id: ID!, $at: DateTime) {{ photo(id: $id, takenAt: $at) {{ {BARE} }} }}"
OF_POPULAR = f'photosOfPerson(personId: "{person_id(POPULAR_PERSON)}", first: {SIZE}'


def _query(name: str, text: str, holds: Callable[[Any], bool]) -> Step:
    async def ask(server: Server, _: int) -> None:
        _check(holds(await server.ask(USERS[0], text)), name)

    return Step(name, ask)


def _listed(name: str, fields: str, holds: Callable[[Body], bool], field: str = "photos(") -> Step:
    """Return the step of a page of photos. `holds` checks each photo."""
    text = f"{{ list: {field} first: {SIZE}) {{ nodes {{ {fields} }} {PAGE_INFO} }} }}"

    def all_hold(data: Any) -> bool:
        nodes = data["list"]["nodes"]
        return len({node["imageId"] for node in nodes}) == SIZE and all(map(holds, nodes))

    return _query(name, text, all_hold)


def _queries(second_page: str) -> Iterator[Step]:
    yield _listed("photos, bare", BARE, _bare)
    yield _listed("photos with persons and faces", SHOWN, _shown)
    yield _listed("photos with persons, faces and users", OWNED, lambda node: _shown(node) and bool(node["user"]))
    yield _listed("photos, imageId and thumbnailUrl", "imageId thumbnailUrl", _has_url)
    of_user = f'photosByUser(email: "{USERS[0]}",'
    yield _listed("photosByUser, bare", BARE, _bare, of_user)
    yield _listed("photosByUser with persons and faces", SHOWN, _shown, of_user)
    yield _of_person("photosOfPerson with edge faces", BARE, _bare)
    yield _of_person("photosOfPerson with edge faces, page 2", BARE, _bare, second_page)
    yield _of_person("photosOfPerson with edge faces, persons, all faces and users", OWNED, _shown)
    yield Step("photo with takenAt", _by_id(True))
    yield Step("photo without takenAt", _by_id(False))


def _bare(node: Body) -> bool:
    return bool(node["description"]) and len(node["personIds"]) == FACES_EACH


def _shown(node: Body) -> bool:
    names = [person and person["name"] for person in node["persons"]]
    return _bare(node) and len(names) == FACES_EACH == sum(bool(face) for face in node["faces"]) and all(names)


def _has_url(node: Body) -> bool:
    return "/media/" in (node["thumbnailUrl"] or "")


def _of_person(name: str, fields: str, holds: Callable[[Body], bool], after: str | None = None) -> Step:
    more = f', after: "{after}"' if after else ""
    text = f"{{ {OF_POPULAR}{more}) {{ edges {{ {FACES} node {{ {fields} }} }} {PAGE_INFO} }} }}"

    def all_hold(data: Any) -> bool:
        edges = data["photosOfPerson"]["edges"]
        has_faces = all([face["personId"] for face in edge["faces"]] == [person_id(POPULAR_PERSON)] for edge in edges)
        return has_faces and len(edges) == SIZE and all(holds(edge["node"]) for edge in edges)

    return _query(name, text, all_hold)


def _by_id(with_moment: bool) -> Action:
    async def ask(server: Server, number: int) -> None:
        number %= PHOTOS
        at = taken_at(number).isoformat() if with_moment else None
        answer = await server.ask(USERS[0], PHOTO, {"id": image_id(number), "at": at})
        _check(answer["photo"]["imageId"] == image_id(number), "photo")

    return ask


async def _second_page(server: Server) -> str:
    """Return the cursor before the second page of a person's photos."""
    answer = await server.ask(USERS[0], f"{{ {OF_POPULAR}) {{ {PAGE_INFO} }} }}")
    return str(answer["photosOfPerson"]["pageInfo"]["endCursor"])


CREATE = """mutation ($input: CreatePhotoInput!) { createPhoto(input: $input) {
  imageId expiresAt original { url fields { name value } fileField contentType maxBytes } } }"""
COMPLETE = f"mutation ($id: ID!) {{ completePhoto(imageId: $id) {{ {BARE} thumbnailUrl }} }}"
LOG = "mutation ($events: [LogEventInput!]!) { logEvent(events: $events) { eventId eventType } }"
DELETE = "mutation ($id: ID!, $at: DateTime) { deletePhoto(imageId: $id, takenAt: $at) { imageId personIds } }"
NEW = {"contentType": "JPEG", "description": "Boats in the harbour.", "tags": ["harbour", "evening"]}


def _writes(group_photos: Sequence[str]) -> Iterator[Step]:
    uploads = _Uploads()
    yield Step("createPhoto", uploads.create)
    yield Step("upload of its JPEG of 640x480 to /media", uploads.send)
    yield Step("completePhoto", uploads.complete)
    yield Step(f"{CONCURRENT} concurrent createPhoto at a limit of {LIMIT}, in total", _concurrent, 1)
    yield Step(f"logEvent of {EVENTS} events", _log)
    yield Step(f"deletePhoto with {GROUP_SIZE} faces", _delete(group_photos), DELETED)


class _Uploads:
    """The steps of an upload. Each step is done for all photos of a round."""

    def __init__(self) -> None:
        self._picture = picture()
        self._created: deque[Body] = deque()
        self._sent: deque[str] = deque()

    async def create(self, server: Server, _: int) -> None:
        answer = await server.ask(UPLOADER, CREATE, {"input": NEW})
        self._created.append(answer["createPhoto"])

    async def send(self, server: Server, _: int) -> None:
        upload = self._created.popleft()
        target, form = upload["original"], aiohttp.FormData()
        for form_field in target["fields"]:
            form.add_field(form_field["name"], form_field["value"])
        form.add_field(target["fileField"], self._picture, filename="photo.jpg", content_type=target["contentType"])
        async with server.http.post(target["url"], data=form) as response:
            _check(response.status == 204, "The upload")
        self._sent.append(upload["imageId"])

    async def complete(self, server: Server, _: int) -> None:
        id = self._sent.popleft()
        photo = (await server.ask(UPLOADER, COMPLETE, {"id": id}))["completePhoto"]
        right = photo["imageId"] == id and (photo["width"], photo["height"]) == PICTURE
        _check(right and photo["size"] == len(self._picture) and _has_url(photo), "completePhoto")


async def _concurrent(server: Server, number: int) -> None:
    """Create photos concurrently for one user. Check that the refusals state the limit."""
    headers = {"Authorization": f"Bearer {server.sign(limited(number))}"}

    async def create() -> str:
        body = {"query": CREATE, "variables": {"input": NEW}}
        async with server.http.post(f"{server.url}/graphql", json=body, headers=headers) as response:
            answer = await response.json()
        errors = [error["extensions"] for error in answer.get("errors", ())]
        return f"{errors[0]['code']} {errors[0].get('limit')}" if errors else "RESERVED"

    outcomes = Counter(await asyncio.gather(*[create() for _ in range(CONCURRENT)]))
    _check(outcomes == {"RESERVED": LIMIT, f"CONFLICT {LIMIT}": CONCURRENT - LIMIT}, "createPhoto")


async def _log(server: Server, number: int) -> None:
    events = [
        {"eventType": "PHOTO_VIEW", "eventData": {"imageId": image_id(number * EVENTS + index), "list": "photos"}}
        for index in range(EVENTS)
    ]
    logged = (await server.ask(UPLOADER, LOG, {"events": events}))["logEvent"]
    _check(len({event["eventId"] for event in logged}) == EVENTS, "logEvent")


def _delete(group_photos: Sequence[str]) -> Action:
    async def delete(server: Server, number: int) -> None:
        variables = {"id": group_photos[number], "at": taken_at(PHOTOS + number).isoformat()}
        photo = (await server.ask(GROUP_USER, DELETE, variables))["deletePhoto"]
        _check(photo["imageId"] == group_photos[number] and len(photo["personIds"]) == GROUP_SIZE, "deletePhoto")

    return delete


async def _check_gone(server: Server, group_photos: Sequence[str]) -> None:
    """Check that all photos with groups are deleted, with their faces."""
    for id in group_photos:
        _check((await server.ask(USERS[0], PHOTO, {"id": id}))["photo"] is None, "photo")
    for name in GROUP_PERSONS:
        text = f'{{ person(id: "{person_id(name)}") {{ faceCount }} }}'
        _check((await server.ask(USERS[0], text))["person"]["faceCount"] == 0, "person")
