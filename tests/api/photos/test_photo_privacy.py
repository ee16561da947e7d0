"""Emails appear in responses to their owner and to admins, in no form in any other response, and not in the log."""

import asyncio
import hashlib
import logging
import runpy
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import pytest

from datastore.change_streams.change import Change
from datastore.change_streams.subscriptions.event_source import SourceReader
from datastore.dynamodb.records import logged_keys, record_or_error
from datastore.errors import Internal
from datastore.keyspace.photos.table import SPARKS
from datastore.model import log_redaction as emails
from datastore.model.identity import Role
from datastore.model.ids import uuid7
from datastore.model.log_redaction import redact_emails
from datastore.model.timestamps import iso, to_seconds
from datastore.photos.users import PhotoUser
from datastore.queues import QueueLimits
from resolvers.shared.event_source import follow
from resolvers.shared.global_ids import global_id
from schema.photos import SYSTEM
from tests.support.deliveries import events_in
from tests.support.photo_items import face, livestream, person, photo, photo_user, put_library_items, tagged, user_id
from tests.support.photo_privacy import Values, library_fields, operation_variants, reveals
from tests.support.served import Served

OWNER, BROKEN, EVE, ROOT = "victim.v@private.example", "broken.b@private.example", "eve@example.com", "root@example.com"
NEEDLES = "victim.v", "broken.b", "private.example"

Item = dict[str, Any]


@dataclass
class OwnedValues:
    """The values of each argument that lead to the owner's data, or to damaged items of it."""

    values: Values


class Images(NamedTuple):
    """The ids of the library's images."""

    early: str
    tagged: str
    of_broken: str
    of_eve: str
    bad_date: str
    bad_key: str
    bad_description: str
    upload: str


@pytest.fixture
async def world(served: Served) -> OwnedValues:
    now = served.clock.now
    images = Images(*[uuid7(now, served.gateway.services.new_id()) for _ in Images._fields])  # type: ignore[union-attr]
    await put_library_items(served, *users_and_persons(), *images_and_faces(images), *other_items(images, now))
    users = [user_id(served, email) for email in (OWNER, BROKEN, EVE)]
    return OwnedValues(argument_values(images, users))


def users_and_persons() -> list[Item]:
    return [
        photo_user(OWNER, displayName="Vic"),
        photo_user(EVE),
        {**photo_user(BROKEN, displayName="Bo"), "createdAt": BROKEN},  # damaged: the error must not hold the email
        person("p1"),
        person("p2"),
        person("p3", createdAt=OWNER),
        person("p4", thumbnailUrl=f"https://bucket.s3.example/thumbnails/{OWNER}/1.jpg"),
    ]


def images_and_faces(images: Images) -> list[Item]:
    people = [person("p1"), person("p2")]
    faces = [face("f1", images.tagged, "p1"), face("f2", images.tagged, "p2"), face("f3", images.of_eve, "p1")]
    return [
        photo(images.early, OWNER, persons=["p1", "p4", "gone"]),
        tagged(photo(images.tagged, OWNER, originalKey=f"originals/{images.tagged}.jpg"), faces[:2], *people),
        photo(images.of_broken, BROKEN),
        tagged(photo(images.of_eve, EVE), faces[2:], people[0]),
        *faces,
        # Damaged items: their errors must not hold the email.
        photo(images.bad_date, OWNER, createdAt=OWNER),
        photo(images.bad_key, OWNER) | {"SK": "IMAGE#someday"},
        face("f4", images.early, "p1", createdAt=OWNER),
        # An item that can be read, but not returned.
        photo(images.bad_description, OWNER, description={"by": OWNER}),
    ]


def other_items(images: Images, now: datetime) -> list[Item]:
    upload = {
        **entity("UPLOAD", images.upload, now),
        "email": OWNER,
        "imageId": images.upload,
        "contentType": "image/jpeg",
        "tags": [],
        "takenAt": iso(now),
        "expires": to_seconds(now) + 3600,
    }
    return [livestream("l1"), upload, {**entity("EVENT", "e", now), "eventType": "X", "email": OWNER}]


def entity(kind: str, id: str, now: datetime) -> Item:
    return {"PK": f"{kind}#{id}", "SK": f"{kind}#{id}", "entityType": kind, "createdAt": iso(now)}


def argument_values(images: Images, users: Sequence[str]) -> Values:
    """Return the values to try for each argument."""
    ids = [*images, "none"]
    nodes = [
        *[global_id("Photo", id, "2023-01-01T00:00:00Z") for id in ids],
        *[global_id("PhotoUser", id) for id in users],
        *[global_id("Person", id) for id in ("p1", "p3")],
        *[global_id("Face", id, images.tagged) for id in ("f1", "none")],
        global_id("Face", "f4", images.early),
        global_id("Livestream", "l1"),
    ]
    return {
        "imageId": [images.tagged, images.bad_date, images.of_eve, images.upload],
        "photo.id": ids,
        "takenAt": ["2023-01-01T00:00:00Z"],
        "userId": [*users, "forged"],
        "photoUser.id": [*users, "forged"],
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
        "contentType": ["image/jpeg"],
        "thumbnailUrl": ["https://example.com/thumbnail.jpg"],
        "streamUrl": ["https://example.com/stream"],
    }


@pytest.fixture
def exposed_keys(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """An object store whose URLs show the keys of files, as those of S3 do."""
    services = served.gateway.services
    assert services is not None

    async def url(key: str, **_: Any) -> str:
        return f"https://bucket.s3.example/{key}?X-Amz-Signature=1"

    monkeypatch.setattr(services.objects, "exposes_keys", True)
    monkeypatch.setattr(services.objects, "url", url)


async def answer_body(
    served: Served, document: str, variables: dict[str, Any], email: str | None, role: Role = Role.USER
) -> str:
    """Return the body of a response."""
    headers = {} if email is None else served.headers(email.partition("@")[0], role, email)
    body = {"query": document, "variables": variables}
    async with served.http.post(f"{served.url}/graphql", json=body, headers=headers) as response:
        assert response.status == 200
        return await response.text()


async def all_answers(
    served: Served, world: OwnedValues, email: str | None, role: Role, kinds: Sequence[str]
) -> dict[str, str]:
    """Return the responses of all queries and mutations of the library, with all values of their arguments."""
    types = [kind.declaration.name for kind in SYSTEM.nodes]
    return {
        name: "\n".join(
            [
                await answer_body(served, *operation, email, role)
                for operation in operation_variants(kind, name, world.values, types)
            ]
        )
        for kind in kinds
        for name in library_fields(kind)
    }


QUERIES, ALL = ("query",), ("query", "mutation")
# Callers that must not see the email, the operations that they send, and the codes of some refusals.
OTHERS: list[tuple[str | None, Role, Sequence[str], set[str]]] = [
    (None, Role.USER, ALL, {"UNAUTHENTICATED", "INTERNAL", "BAD_USER_INPUT", "BAD_CURSOR"}),
    (EVE, Role.USER, ALL, {"FORBIDDEN", "INTERNAL", "BAD_USER_INPUT", "BAD_CURSOR", "NOT_FOUND", "CONFLICT"}),
    (EVE, Role.SYSTEM, QUERIES, {"FORBIDDEN", "INTERNAL", "BAD_USER_INPUT", "BAD_CURSOR"}),
]


@pytest.mark.proof
@pytest.mark.usefixtures("exposed_keys")
async def test_no_field_of_the_library_shows_another_user_an_email(
    served: Served, world: OwnedValues, caplog: pytest.LogCaptureFixture
) -> None:
    for email, role, kinds, codes in OTHERS:
        with caplog.at_level(logging.DEBUG):
            answers = await all_answers(served, world, email, role, kinds)

        assert [name for name, body in answers.items() if reveals(body, *NEEDLES)] == []
        # The responses contain data, and refusals of every kind.
        assert {
            name for name in ("photos", "photosByUser", "photoUser", "photo", "nodes") if "Vic" in answers[name]
        } == {*("photos", "photosByUser", "photoUser", "photo", "nodes")}
        assert {code for code in codes if f'"code":"{code}"' in "".join(answers.values())} == codes
    assert "An item cannot be read" in caplog.text
    assert not reveals(caplog.text, *NEEDLES)


@pytest.mark.usefixtures("exposed_keys")
async def test_owners_see_their_own_emails_and_admins_all(served: Served, world: OwnedValues) -> None:
    shown = "{ photos { nodes { email originalUrl thumbnailUrl user { email } } } }"

    own = await answer_body(served, shown, {}, OWNER.upper())
    all_users = await answer_body(served, shown, {}, ROOT, Role.ADMIN)
    me = await answer_body(served, "{ me { photoUser { email photos { nodes { email thumbnailUrl } } } } }", {}, OWNER)

    assert [reveals(own, needle) for needle in NEEDLES] == [True, False, True]
    assert [reveals(all_users, needle) for needle in NEEDLES] == [True, True, True]
    assert reveals(me, "victim.v")
    assert "https://bucket.s3.example/originals/victim.v@private.example/" in own
    # The search finds the emails in the responses to an admin, so it would find them in those to others.
    answers = await all_answers(served, world, ROOT, Role.ADMIN, QUERIES)
    assert {"photos", "photosByUser", "photoUser", "photo", "node", "nodes", "photoUsers", "photosByPerson"} <= {
        name for name, body in answers.items() if reveals(body, *NEEDLES)
    }


async def test_cursors_and_ids_of_every_caller_contain_no_email(served: Served, world: OwnedValues) -> None:
    page = "edges { cursor node { id } } lastEvaluatedKey pageInfo { startCursor endCursor }"
    query = f"""{{ photoUsers(first: 1) {{ {page} nodes {{ id userId }} }}
      photosByUser(email: "{OWNER}", first: 1) {{ {page} nodes {{ id userId }} }}
      photos(first: 1) {{ {page} nodes {{ id userId thumbnailUrl originalUrl faces {{ id }} }} }} }}"""

    answer = await answer_body(served, query, {}, ROOT, Role.ADMIN)

    assert answer.count("lastEvaluatedKey") == 3
    assert '"lastEvaluatedKey":null' not in answer
    assert not reveals(answer, *NEEDLES)


@pytest.mark.usefixtures("exposed_keys")
async def test_urls_that_show_keys_are_given_to_others_only_if_they_contain_no_email(served: Served) -> None:
    keys = {"originalKey": "originals/1.jpg", "thumbnailKey": "thumbnails/1.jpg"}
    encoded = {"originalKey": f"originals/{OWNER.replace('@', '%40')}/2.jpg", "thumbnailKey": "thumbnails/2.jpg"}
    foreign = {"originalKey": f"originals/{BROKEN}/3.jpg", "thumbnailKey": f"thumbnails/{OWNER.title()}/3.jpg"}
    await put_library_items(
        served,
        photo("a", OWNER),
        photo("b", OWNER, **keys),
        photo("c", OWNER, **encoded),
        photo("d", OWNER, **foreign),
    )
    ask = "{ photos(order: ASCENDING) { nodes { originalUrl thumbnailUrl } } }"

    async def given(email: str | None, role: Role = Role.USER) -> list[list[bool]]:
        answer = await served.ask(ask, user=email, role=role, email=email)
        assert answer.errors is None
        return [[url is not None for url in node.values()] for node in answer.data["photos"]["nodes"]]

    assert await given(EVE) == await given(None) == [[False, False], [True, True], [False, True], [False, False]]
    assert await given(OWNER) == await given(ROOT, Role.ADMIN) == [[True, True]] * 4


async def test_the_thumbnail_of_a_person_is_shown_to_others_only_if_its_url_contains_no_email(served: Served) -> None:
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
    await put_library_items(served, *[person(id, thumbnailUrl=url) for id, url in urls.items()])
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


def test_a_damaged_item_is_logged_with_a_hash_of_its_email(caplog: pytest.LogCaptureFixture) -> None:
    def fails(item: Any) -> PhotoUser:
        raise ValueError(f"no date: {item['email']!r}")

    for convert in (PhotoUser.decoder, fails):
        assert isinstance(record_or_error(convert, photo_user(OWNER) | {"createdAt": OWNER}), Internal)

    hashed = redact_emails(OWNER)
    assert not reveals(caplog.text, *NEEDLES)
    assert caplog.text.count(f"'PK': 'USER#{hashed}', 'SK': 'USER#{hashed}'") == 2
    assert f"no date: {hashed}" in caplog.text


@pytest.mark.parametrize("email", [OWNER, "o'brien@private.example", 'a"b@x', "a%23b@private.example", "日@本.jp"])
def test_a_logged_key_with_an_at_sign_is_a_short_hash(email: str) -> None:
    hashed = redact_emails(email)

    assert len(hashed) == 10
    assert hashed != redact_emails("x" + email)
    assert redact_emails(email.upper()) == hashed
    logged = logged_keys({"PK": f"USER#{email}", "SK": f"A#1#{email}#B", "email": email, "displayName": email})
    assert logged == {"PK": f"USER#{hashed}", "SK": f"A#1#{hashed}#B"}
    assert logged_keys({"pk": 7, "matchId": "m-1"}) == {"pk": 7, "matchId": "m-1"}


def test_hashes_of_emails_differ_from_process_to_process() -> None:
    """Otherwise a reader of the log could find the email of a hash by trying."""
    elsewhere = runpy.run_path(emails.__file__)["redact_emails"]

    assert elsewhere(OWNER) == elsewhere(OWNER.upper()) != redact_emails(OWNER)
    assert hashlib.sha256(OWNER.encode()).hexdigest()[:8] not in redact_emails(OWNER)


async def test_an_unreadable_change_is_reported_without_the_email(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    def select(change: Change) -> str:
        assert change.new
        if change.new["entityType"] == "USER":
            raise ValueError(f"{change.new['email']} has no date")
        return str(change.new["imageId"])

    events = events_in(follow(SourceReader(served.gateway.open_context(None)), SPARKS, select, QueueLimits()))
    first = asyncio.ensure_future(anext(events))
    await served.settle(SPARKS)
    await put_library_items(served, photo_user(OWNER))
    await put_library_items(served, photo("a"))

    assert await first == "a"
    await events.aclose()
    assert f"A change of {served.gateway.store_options.prefix}sparks is damaged" in caplog.text
    assert f"USER#{redact_emails(OWNER)}" in caplog.text
    assert not reveals(caplog.text, *NEEDLES)
