"""Emails are told to their owner and to admins: to nobody else in any answer, in any form, and not to the log."""

import asyncio
import hashlib
import logging
import runpy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from conftest import Served
from photo_items import face, livestream, person, photo, put, tagged, user, user_id
from photo_privacy import Values, library_fields, operations, reveals

from datastore import emails
from datastore.emails import without_emails
from datastore.errors import Internal
from datastore.hub import Keeping
from datastore.ids import uuid7
from datastore.keyspace.photos.table import SPARKS
from datastore.moments import iso, to_seconds
from datastore.photos.users import PhotoUser, photo_user_from
from datastore.records import logged_keys, parsed
from datastore.streams import Change
from resolvers.access import Role
from resolvers.nodes import global_id
from resolvers.subscribing import follow
from schema.photos import NODES

OWNER, BROKEN, EVE, ROOT = "victim.v@private.example", "broken.b@private.example", "eve@example.com", "root@example.com"
NEEDLES = "victim.v", "broken.b", "private.example"


@dataclass
class World:
    """What the owner has in the library: their photos, ids that lead to them, and what is wrong there."""

    values: Values


@pytest.fixture
async def world(served: Served) -> World:
    now = served.clock.now
    ids = [uuid7(now, served.gateway.services.new_id()) for _ in range(8)]  # type: ignore[union-attr]
    old, ours, other, eves, damaged, worse, wrong, on_its_way = ids
    people = [person("p1"), person("p2")]
    faces = [face("f1", ours, "p1"), face("f2", ours, "p2"), face("f3", eves, "p1")]
    await put(
        served,
        user(OWNER, displayName="Vic"),
        user(EVE),
        # Damaged ones: what cannot be read is what must not be told.
        {**user(BROKEN, displayName="Bo"), "createdAt": BROKEN},
        photo(damaged, OWNER, createdAt=OWNER),
        photo(worse, OWNER) | {"SK": "IMAGE#someday"},
        # One that can be read, and cannot be answered.
        photo(wrong, OWNER, description={"by": OWNER}),
        person("p3", createdAt=OWNER),
        face("f4", old, "p1", createdAt=OWNER),
        photo(old, OWNER, persons=["p1", "p4", "gone"]),
        person("p4", thumbnailUrl=f"https://bucket.s3.example/thumbnails/{OWNER}/1.jpg"),
        tagged(photo(ours, OWNER, originalKey=f"originals/{ours}.jpg"), faces[:2], *people),
        photo(other, BROKEN),
        tagged(photo(eves, EVE), faces[2:], people[0]),
        *people,
        *faces,
        livestream("l1"),
        {
            "PK": f"UPLOAD#{on_its_way}",
            "SK": f"UPLOAD#{on_its_way}",
            "entityType": "UPLOAD",
            "email": OWNER,
            "imageId": on_its_way,
            "contentType": "image/jpeg",
            "tags": [],
            "takenAt": iso(now),
            "createdAt": iso(now),
            "expires": to_seconds(now) + 3600,
        },
        {
            "PK": "EVENT#e",
            "SK": "EVENT#e",
            "entityType": "EVENT",
            "eventType": "X",
            "email": OWNER,
            "createdAt": iso(now),
        },
    )
    images = [old, ours, other, eves, damaged, worse, wrong, on_its_way, "none"]
    users = [user_id(served, email) for email in (OWNER, BROKEN, EVE)]
    nodes = [
        *[global_id("Photo", id, "2023-01-01T00:00:00Z") for id in images],
        *[global_id("PhotoUser", id) for id in users],
        *[global_id("Person", id) for id in ("p1", "p3")],
        *[global_id("Face", id, ours) for id in ("f1", "none")],
        global_id("Face", "f4", old),
        global_id("Livestream", "l1"),
    ]
    return World(
        {
            "imageId": [ours, damaged, eves, on_its_way],
            "photo.id": images,
            "takenAt": ["2023-01-01T00:00:00Z"],
            "userId": [*users, "forged"],
            "email": [OWNER, BROKEN],
            "personId": ["p1", "p3", "none"],
            "person.id": ["p1", "p3", "none"],
            "from": ["p1", "p3"],
            "into": ["p3", "p2"],
            "faceId": ["f1", "f4", "none"],
            "livestreamId": ["l1"],
            "livestream.id": ["l1"],
            "node.id": nodes[::3],
            "nodes.ids": nodes,
            "after": ["forged"],
            "first": [2],
            "last": [2],
            "thumbnailUrl": ["https://example.com/thumbnail.jpg"],
            "streamUrl": ["https://example.com/stream"],
        }
    )


@pytest.fixture
def telling(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """An object store whose URLs show the keys of files, as those of S3 do."""
    services = served.gateway.services
    assert services is not None

    async def url(key: str, **_: Any) -> str:
        return f"https://bucket.s3.example/{key}?X-Amz-Signature=1"

    monkeypatch.setattr(services.objects, "tells_keys", True)
    monkeypatch.setattr(services.objects, "url", url)


async def body(
    served: Served, document: str, variables: dict[str, Any], email: str | None, role: Role = Role.USER
) -> str:
    """The whole body of an answer."""
    headers = {} if email is None else served.headers(email.partition("@")[0], role, email)
    asked = {"query": document, "variables": variables}
    async with served.http.post(f"{served.url}/graphql", json=asked, headers=headers) as response:
        assert response.status == 200
        return await response.text()


async def everything(
    served: Served, world: World, email: str | None, role: Role, kinds: Sequence[str]
) -> dict[str, str]:
    """The answers of all queries and mutations of the library, asked in every way."""
    types = [node.__name__ for node in NODES]
    return {
        name: "\n".join(
            [await body(served, *asked, email, role) for asked in operations(kind, name, world.values, types)]
        )
        for kind in kinds
        for name in library_fields(kind)
    }


QUERIES, ALL = ("query",), ("query", "mutation")
# Who is not to be told, what they ask, and with which codes some of it is refused.
OTHERS: list[tuple[str | None, Role, Sequence[str], set[str]]] = [
    (None, Role.USER, ALL, {"UNAUTHENTICATED", "INTERNAL", "BAD_USER_INPUT", "BAD_CURSOR"}),
    (EVE, Role.USER, ALL, {"FORBIDDEN", "INTERNAL", "BAD_USER_INPUT", "BAD_CURSOR", "NOT_FOUND", "CONFLICT"}),
    (EVE, Role.SYSTEM, QUERIES, {"FORBIDDEN", "INTERNAL", "BAD_USER_INPUT", "BAD_CURSOR"}),
]


@pytest.mark.usefixtures("telling")
async def test_nobody_else_is_told_an_email_by_any_field_of_the_library(
    served: Served, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    for email, role, kinds, codes in OTHERS:
        with caplog.at_level(logging.DEBUG):
            answers = await everything(served, world, email, role, kinds)

        assert [name for name, told in answers.items() if reveals(told, *NEEDLES)] == []
        # It is not for want of answers, nor of refusals of every kind.
        assert {
            name for name in ("photos", "photosByUser", "photoUser", "photo", "nodes") if "Vic" in answers[name]
        } == {*("photos", "photosByUser", "photoUser", "photo", "nodes")}
        assert {code for code in codes if f'"code":"{code}"' in "".join(answers.values())} == codes
    assert "An item cannot be read" in caplog.text
    assert not reveals(caplog.text, *NEEDLES)


@pytest.mark.usefixtures("telling")
async def test_owners_are_told_their_own_emails_and_admins_all(served: Served, world: World) -> None:
    shown = "{ photos { nodes { email originalUrl thumbnailUrl user { email } } } }"

    own = await body(served, shown, {}, OWNER.upper())
    everybodys = await body(served, shown, {}, ROOT, Role.ADMIN)
    me = await body(served, "{ me { photoUser { email photos { nodes { email thumbnailUrl } } } } }", {}, OWNER)

    assert [reveals(own, needle) for needle in NEEDLES] == [True, False, True]
    assert [reveals(everybodys, needle) for needle in NEEDLES] == [True, True, True]
    assert reveals(me, "victim.v")
    assert "https://bucket.s3.example/originals/victim.v@private.example/" in own
    # What a search in all of it finds, it finds in the same answers that others get without.
    answers = await everything(served, world, ROOT, Role.ADMIN, QUERIES)
    assert {"photos", "photosByUser", "photoUser", "photo", "node", "nodes", "photoUsers", "photosOfPerson"} <= {
        name for name, told in answers.items() if reveals(told, *NEEDLES)
    }


async def test_cursors_and_ids_hold_no_email_whoever_they_are_made_for(served: Served, world: World) -> None:
    page = "edges { cursor node { id } } lastEvaluatedKey pageInfo { startCursor endCursor }"
    asked = f"""{{ photoUsers(first: 1) {{ {page} nodes {{ id userId }} }}
      photosByUser(email: "{OWNER}", first: 1) {{ {page} nodes {{ id userId }} }}
      photos(first: 1) {{ {page} nodes {{ id userId thumbnailUrl originalUrl faces {{ id }} }} }} }}"""

    answer = await body(served, asked, {}, ROOT, Role.ADMIN)

    assert answer.count("lastEvaluatedKey") == 3
    assert '"lastEvaluatedKey":null' not in answer
    assert not reveals(answer, *NEEDLES)


@pytest.mark.usefixtures("telling")
async def test_urls_that_show_keys_are_given_to_others_only_where_no_email_is_in_them(served: Served) -> None:
    keys = {"originalKey": "originals/1.jpg", "thumbnailKey": "thumbnails/1.jpg"}
    encoded = {"originalKey": f"originals/{OWNER.replace('@', '%40')}/2.jpg", "thumbnailKey": "thumbnails/2.jpg"}
    elses = {"originalKey": f"originals/{BROKEN}/3.jpg", "thumbnailKey": f"thumbnails/{OWNER.title()}/3.jpg"}
    await put(
        served,
        photo("a", OWNER),
        photo("b", OWNER, **keys),
        photo("c", OWNER, **encoded),
        photo("d", OWNER, **elses),
    )
    ask = "{ photos(order: ASCENDING) { nodes { originalUrl thumbnailUrl } } }"

    async def given(email: str | None, role: Role = Role.USER) -> list[list[bool]]:
        answer = await served.ask(ask, user=email, role=role, email=email)
        assert answer.errors is None
        return [[url is not None for url in node.values()] for node in answer.data["photos"]["nodes"]]

    assert await given(EVE) == await given(None) == [[False, False], [True, True], [False, True], [False, False]]
    assert await given(OWNER) == await given(ROOT, Role.ADMIN) == [[True, True]] * 4


async def test_a_picture_of_a_person_is_shown_to_others_only_where_no_email_is_in_its_url(served: Served) -> None:
    urls = {
        "a": "https://example.com/thumbnail.jpg",
        "b": "https://example.com/thumbnail@2x.jpg",
        "c": f"https://example.com/{OWNER}/thumbnail.jpg",
        "d": "https://example.com/victim.v%40private.example.jpg",
        "e": "https://example.com/victim.v%2540private.example.jpg",
        "f": "https://example.com/thumbnail@1.5x.PNG?width=90",
        "g": "https://example.com/victim.v@2x.com/thumbnail.jpg",
        "h": "https://example.com/victim.v@2x.com",
        "i": "https://example.com/victim.v@3x-foo.org/thumbnail@3x.jpg",
        "j": "https://example.com/victim.v@1.5x.io/thumbnail.jpg",
        "k": "https://example.com/victim.v%402x.jpg.com/thumbnail.jpg",
    }
    await put(served, *[person(id, thumbnailUrl=url) for id, url in urls.items()])
    ask = "{ persons { nodes { personId thumbnailUrl } } }"

    async def shown(role: Role) -> list[str]:
        answer = await served.ask(ask, user="root", role=role)
        return [
            node["personId"]
            for node in answer.data["persons"]["nodes"]
            if node["thumbnailUrl"] == urls[node["personId"]]
        ]

    assert await shown(Role.ADMIN) == list(urls)
    assert await shown(Role.USER) == await shown(Role.SYSTEM) == list("abf")


# The log.


def test_a_damaged_item_is_told_in_the_log_by_a_hash_of_its_email(caplog: pytest.LogCaptureFixture) -> None:
    def fails(item: Any) -> PhotoUser:
        raise ValueError(f"no date: {item['email']!r}")

    for convert in (photo_user_from, fails):
        assert isinstance(parsed(convert, user(OWNER) | {"createdAt": OWNER}), Internal)

    hashed = without_emails(OWNER)
    assert not reveals(caplog.text, *NEEDLES)
    assert caplog.text.count(f"'PK': 'USER#{hashed}', 'SK': 'USER#{hashed}'") == 2
    assert f"no date: {hashed}" in caplog.text


@pytest.mark.parametrize("email", [OWNER, "o'brien@private.example", 'a"b@x', "a%23b@private.example", "日@本.jp"])
def test_what_has_an_at_sign_in_a_logged_key_is_a_short_hash(email: str) -> None:
    hashed = without_emails(email)

    assert len(hashed) == 10
    assert hashed != without_emails("x" + email)
    assert without_emails(email.upper()) == hashed
    told = logged_keys({"PK": f"USER#{email}", "SK": f"A#1#{email}#B", "email": email, "displayName": email})
    assert told == {"PK": f"USER#{hashed}", "SK": f"A#1#{hashed}#B"}
    assert logged_keys({"pk": 7, "matchId": "m-1"}) == {"pk": 7, "matchId": "m-1"}


def test_no_other_process_makes_the_hashes_of_this_one() -> None:
    """Else whoever reads the log could try which email a hash is of."""
    elsewhere = runpy.run_path(emails.__file__)["without_emails"]

    assert elsewhere(OWNER) == elsewhere(OWNER.upper()) != without_emails(OWNER)
    assert hashlib.sha256(OWNER.encode()).hexdigest()[:8] not in without_emails(OWNER)


async def test_a_change_that_cannot_be_read_is_told_without_the_email(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    def select(change: Change) -> str:
        assert change.new
        if change.new["entityType"] == "USER":
            raise ValueError(f"{change.new['email']} has no date")
        return str(change.new["imageId"])

    events = follow(served.gateway.open_context(None), SPARKS, select, Keeping())
    first = asyncio.ensure_future(anext(events))
    await served.settle(SPARKS)
    await put(served, user(OWNER))
    await put(served, photo("a"))

    assert await first == "a"
    await events.aclose()
    assert "A change of sparks cannot be read" in caplog.text
    assert f"USER#{without_emails(OWNER)}" in caplog.text
    assert not reveals(caplog.text, *NEEDLES)
