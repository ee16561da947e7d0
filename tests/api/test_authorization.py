"""The authorization of each field, nested field, node and subscription of the declared patterns, by kind of caller.

The cases are compared with the declarations: a declared pattern without a case here fails a test.
"""

from dataclasses import dataclass
from typing import Any

import pytest

import schema as api
from datastore.keyspace import PATTERNS
from datastore.keyspace.feeds.table import FEED
from datastore.matches.cricket import Match
from datastore.matches.fixtures import Fixtures
from datastore.model.access_patterns import AccessPattern, Who
from datastore.model.identity import Role
from tests.support import photo_contract
from tests.support.contract import ASK, FOLLOWER_SETUP, OTHER_SETUP, SETUP, SYSTEM_SETUP, begin_polled_match
from tests.support.earthquake_samples import quake, store
from tests.support.notifications import notification_item
from tests.support.photo_items import ADA, EVE
from tests.support.served import NOON, Served

ALLOWED: list[str] = []
SIGN_IN, FORBIDDEN, MISSING = ["UNAUTHENTICATED"], ["FORBIDDEN"], ["NOT_FOUND"]


@dataclass(frozen=True)
class Caller:
    """A kind of caller: the claims of its token."""

    user: str | None = None
    role: Role = Role.USER
    email: str | None = None


CALLERS = {
    "anonymous": Caller(),
    "owner": Caller("ada", email=ADA),
    "stranger": Caller("eve", email=EVE),
    "admin": Caller("root", Role.ADMIN, "root@example.com"),
    "system": Caller("poller", Role.SYSTEM),
}
every_caller = pytest.mark.parametrize("caller", CALLERS)

# The operations of ASK that name Ada as the owner of the data. Other users are refused.
NAMES_ADA = {"watches", "homeFeed", "notifications", "liveActivities", "device", "photoUser"}
# The operations that change Ada's data, where only the item names its owner, and whether admins may execute them.
CHANGES_OF_ADA = {"deletePost": False, "updatePhoto": False, "tagFace": True, "untagFace": True, "deletePhoto": True}
# Users of the photo library are known by their email. Services have none.
BY_EMAIL = {"photoUser", "createPhotoUser", "updatePhotoUser", "createPhoto", "completePhoto", "cancelUpload"}


async def ask_as_caller(served: Served, caller: str, query: str, variables: dict[str, Any] | None = None) -> Any:
    who = CALLERS[caller]
    return await served.ask(query, variables, user=who.user, role=who.role, email=who.email)


@pytest.fixture
async def ids(served: Served) -> dict[str, str]:
    """Store data of Ada in every system. Return the ids that operations of ASK need in the place of %s."""
    prepared = (await ask_as_caller(served, "owner", SETUP)).data
    assert (await ask_as_caller(served, "system", SYSTEM_SETUP)).errors is None
    match = Match("m1", "1", "ONE", home_team_id="10", away_team_id="20", start_time=NOON)
    await Fixtures(served.store(), NOON).sync([match])
    await begin_polled_match(served)
    assert (await served.ask(OTHER_SETUP, user="grace")).errors is None
    assert (await ask_as_caller(served, "owner", FOLLOWER_SETUP)).errors is None
    await photo_contract.prepare_photo_operations(served)
    return {
        "confirmSighting": prepared["reportSighting"]["sightingId"],
        "deleteWatch": prepared["createWatch"]["watchId"],
        "ingestEarthquakes": "http://127.0.0.1:1/none",
        "follow": "grace",
    }


def patterns_of_field(field: str) -> list[AccessPattern]:
    return [pattern for pattern in PATTERNS if field in pattern.fields]


def expected_refusal(name: str, caller: str) -> list[str]:
    """Return the codes with which the declared patterns of a root field refuse a caller; `ALLOWED` if they do not."""
    patterns, role = patterns_of_field(name), CALLERS[caller].role
    restricted = [pattern for pattern in patterns if pattern.who is not Who.ANY]
    if not restricted:
        return ALLOWED
    if caller == "anonymous":
        return SIGN_IN
    if any(pattern.who is not Who.USER and pattern.who.value != role.value for pattern in restricted):
        return FORBIDDEN
    if caller == "stranger" and name in NAMES_ADA | CHANGES_OF_ADA.keys():
        return FORBIDDEN
    if name in CHANGES_OF_ADA and caller != "owner" and not (caller == "admin" and CHANGES_OF_ADA[name]):
        return FORBIDDEN
    return FORBIDDEN if caller == "system" and name in BY_EMAIL else ALLOWED


@pytest.mark.proof
@every_caller
async def test_root_fields(served: Served, ids: dict[str, str], caller: str) -> None:
    answered, called = {}, []
    for name, (query, _, _) in ASK.items():
        answer = await ask_as_caller(served, caller, query.replace("%s", ids.get(name, "")))
        answered[name] = [code for code in answer.codes if code in SIGN_IN + FORBIDDEN]
        if answered[name] and answer.calls and name not in CHANGES_OF_ADA:
            called.append(name)
    assert answered == {name: expected_refusal(name, caller) for name in ASK}
    assert called == []


DATA_OF_ADA = """{
  watches(userId: "ada") { watchId }
  device(userId: "ada") { deviceToken platform }
  liveActivities(userId: "ada") { nodes { status } }
  matchFollow(matchId: "m1") { teamId }
  post(id: "p1") { text visibility }
  user(id: "ada") { name bio followingCount }
  photo(id: "i1", takenAt: "2023-01-01T00:00:00Z") { description tags faces { faceId } }
  photoUser(email: "ada@example.com") { displayName uploadLimit uploadCount }
  userProfile(userId: "ada") { reportTotal }
}"""


@pytest.mark.parametrize("caller", ["anonymous", "stranger"])
async def test_other_callers_cannot_change_the_data_of_ada(served: Served, ids: dict[str, str], caller: str) -> None:
    before = await ask_as_caller(served, "owner", DATA_OF_ADA)
    assert before.errors is None
    for name, (query, _, _) in ASK.items():
        await ask_as_caller(served, caller, query.replace("%s", ids.get(name, "")))
    assert (await ask_as_caller(served, "owner", DATA_OF_ADA)).data == before.data


# The restricted nested fields: a selection of each, and the value or the error codes for each caller.
NESTED: dict[str, tuple[str, dict[str, Any]]] = {
    "Post.likedByViewer": (
        'post(id: "p1") { value: likedByViewer }',
        {"anonymous": None, "owner": True, "stranger": False, "admin": False, "system": False},
    ),
    "User.followedByViewer": (
        'user(id: "grace") { value: followedByViewer }',
        {"anonymous": None, "owner": True, "stranger": False, "admin": False, "system": False},
    ),
    "Match.isFollowed": (
        'match(id: "m1") { value: isFollowed }',
        {"anonymous": SIGN_IN, "owner": True, "stranger": False, "admin": False, "system": False},
    ),
    "Match.active": (
        'match(id: "m3") { value: active { matchId } }',
        {
            "anonymous": SIGN_IN,
            "owner": FORBIDDEN,
            "stranger": FORBIDDEN,
            "admin": FORBIDDEN,
            "system": {"matchId": "m3"},
        },
    ),
    "Match.followers": (
        'match(id: "m1") { value: followers { nodes { userId } } }',
        {
            "anonymous": SIGN_IN,
            "owner": FORBIDDEN,
            "stranger": FORBIDDEN,
            "admin": FORBIDDEN,
            "system": {"nodes": [{"userId": "ada"}]},
        },
    ),
    "Match.liveActivities": (
        'match(id: "m1") { value: liveActivities { nodes { deviceId } } }',
        {
            "anonymous": SIGN_IN,
            "owner": FORBIDDEN,
            "stranger": FORBIDDEN,
            "admin": FORBIDDEN,
            "system": {"nodes": [{"deviceId": "phone"}]},
        },
    ),
    "Me.device": (
        "me { value: device { platform } }",
        {"anonymous": None, "owner": {"platform": "IOS"}, "stranger": None, "admin": None, "system": None},
    ),
    "Me.liveActivities": (
        "me { value: liveActivities { nodes { deviceId } } }",
        {
            "anonymous": None,
            "owner": {"nodes": [{"deviceId": "phone"}]},
            "stranger": {"nodes": []},
            "admin": {"nodes": []},
            "system": {"nodes": []},
        },
    ),
}


def test_every_restricted_nested_field_has_a_case() -> None:
    restricted = [pattern for pattern in PATTERNS if pattern.who is not Who.ANY]
    assert NESTED.keys() == {field for pattern in restricted for field in pattern.fields if "." in field}


@every_caller
async def test_nested_fields(served: Served, ids: dict[str, str], caller: str) -> None:
    assert (await ask_as_caller(served, "owner", 'mutation { likePost(postId: "p1") { postId } }')).errors is None
    seen = {}
    for name, (selection, _) in NESTED.items():
        answer = await ask_as_caller(served, caller, f"{{ parent: {selection} }}")
        parent = (answer.data or {}).get("parent")
        seen[name] = answer.codes or (parent["value"] if parent else None)
    assert seen == {name: expected[caller] for name, (_, expected) in NESTED.items()}


# The types that `node` reads: a query for the id of an item of Ada, and the id of the pattern if it is restricted.
NODES: dict[str, tuple[str, str | None]] = {
    "ActiveMatch": ('activeMatch(id: "m3") { id }', "AM-1"),
    "Comment": ('comments(postId: "p1") { nodes { id } }', None),
    "DisplayState": ('displayState(matchId: "m1", teamId: "10") { id }', None),
    "Earthquake": ('earthquake(eventId: "us1") { id }', None),
    "Face": ('photo(id: "i1", takenAt: "2023-01-01T00:00:00Z") { faces { id } }', None),
    "League": ('league(id: "1") { id }', None),
    "Livestream": ('livestream(id: "l1") { id }', None),
    "Match": ('match(id: "m1") { id }', None),
    "MatchFollow": ('match(id: "m1") { followers { nodes { id } } }', "FOL-1"),
    "Notification": ('notifications(userId: "ada") { nodes { id } }', "FEED-N4"),
    "Person": ('person(id: "p1") { id }', None),
    "Photo": ('photo(id: "i1", takenAt: "2023-01-01T00:00:00Z") { id }', None),
    "PhotoUser": ('photo(id: "i1", takenAt: "2023-01-01T00:00:00Z") { user { id } }', None),
    "Post": ('post(id: "p1") { id }', None),
    "Sighting": ('sightings(area: "Downtown") { nodes { id } }', None),
    "Team": ('team(id: "1") { id }', None),
    "User": ('user(id: "ada") { id }', None),
    "UserProfile": ('userProfile(userId: "ada") { id }', None),
    "Watch": ('watches(userId: "ada") { id }', "BLIP-N2"),
}


def test_every_type_that_node_reads_has_a_case() -> None:
    node = api.build()._schema.get_type("Node")
    assert NODES.keys() == {kind.name for kind in api.build()._schema.get_possible_types(node)}  # type: ignore[arg-type]
    assert {id for _, id in NODES.values() if id} == {
        pattern.id for pattern in patterns_of_field("node") if pattern.who is not Who.ANY
    }


def first_id(found: Any) -> str:
    """Return the first `id` in the data of a response."""
    while not isinstance(found, str):
        found = found[0] if isinstance(found, list) else next(iter(found.values()))
    return found


@every_caller
async def test_nodes(served: Served, ids: dict[str, str], caller: str) -> None:
    comment = 'mutation { addComment(input: {postId: "p1", text: "Nice"}) { commentId } }'
    assert (await served.ask(comment, user="grace")).errors is None
    await served.store().write_all(FEED, puts=[notification_item("like-p1", post_id="p1")])
    await store(served, quake("us1"))
    seen, read, expected = {}, {}, {}
    for kind, (selection, id) in NODES.items():
        found = await ask_as_caller(served, "system", f"{{ {selection} }}")
        assert found.errors is None, (kind, found.errors)
        node_id = first_id(found.data)
        one = await ask_as_caller(
            served, caller, "query Q($id: ID!) { node(id: $id) { __typename id } }", {"id": node_id}
        )
        many = await ask_as_caller(
            served, caller, "query Q($ids: [ID!]!) { nodes(ids: $ids) { id } }", {"ids": [node_id]}
        )
        seen[kind] = one.codes or [one.data["node"]["__typename"]]
        read[kind] = many.codes or [kind]
        (who,) = {p.who for p in patterns_of_field("node") if p.id == id} or {Who.ANY}
        expected[kind] = node_refusal(who, caller) or [kind]
    assert seen == expected
    assert read == expected


def node_refusal(who: Who, caller: str) -> list[str]:
    if who is Who.ANY or caller == "system":
        return ALLOWED
    if caller == "anonymous":
        return SIGN_IN
    if who is Who.USER:
        return FORBIDDEN if caller == "stranger" else ALLOWED
    return FORBIDDEN


# Subscriptions, and whether they name Ada as the owner of the data.
SUBSCRIPTIONS = {
    "sightingReported": ('sightingReported(area: "Downtown") { area }', False),
    "watchAlerts": ('watchAlerts(userId: "ada") { area }', True),
    "homeFeedUpdated": ('homeFeedUpdated(userId: "ada") { postId }', True),
    "notificationReceived": ('notificationReceived(userId: "ada") { notificationId }', True),
    "postEngagement": ('postEngagement(postId: "p1") { likeCount }', False),
    "livestreamChanged": ("livestreamChanged { livestreamId }", False),
    "earthquakeDetected": ("earthquakeDetected { place }", False),
    "matchUpdates": ('matchUpdates(matchId: "m3") { version }', False),
    "liveScores": ("liveScores { isSnapshot }", False),
}


def test_every_subscription_has_a_case() -> None:
    subscription = api.build()._schema.subscription_type
    assert subscription is not None
    assert SUBSCRIPTIONS.keys() == subscription.fields.keys()
    personal = {name for name in SUBSCRIPTIONS if any(pattern.who is Who.USER for pattern in patterns_of_field(name))}
    assert personal == {name for name, (_, is_adas) in SUBSCRIPTIONS.items() if is_adas}


@every_caller
async def test_subscriptions(served: Served, ids: dict[str, str], caller: str) -> None:
    """Refused callers get an error at once. The others get nothing, or the first event of the subscription."""
    who = CALLERS[caller]
    url = served.url.replace("http", "ws") + "/graphql"
    async with served.http.ws_connect(url, protocols=["graphql-transport-ws"]) as socket:
        headers = served.headers(who.user, who.role, who.email)
        await socket.send_json({"type": "connection_init", "payload": headers})
        assert (await socket.receive_json(timeout=10))["type"] == "connection_ack"
        for name, (selection, _) in SUBSCRIPTIONS.items():
            query = f"subscription {{ {selection} }}"
            await socket.send_json({"id": name, "type": "subscribe", "payload": {"query": query}})
        # The socket answers pings in order, so most errors arrive before the first pong, the others within some pings.
        refused: dict[str, list[str]] = {}
        expected = {
            name: SIGN_IN if caller == "anonymous" else FORBIDDEN for name, (_, adas) in SUBSCRIPTIONS.items() if adas
        }
        if caller not in ("anonymous", "stranger"):
            expected = {}
        quiet = 0
        while quiet < 20:
            await socket.send_json({"type": "ping"})
            while (message := await socket.receive_json(timeout=10))["type"] != "pong":
                errors = message.get("payload", []) if message["type"] == "error" else []
                if message["type"] == "next":
                    errors = message["payload"].get("errors", [])
                if errors:
                    refused[message["id"]] = [error["extensions"]["code"] for error in errors]
                quiet = 0
            quiet = quiet + 1 if refused.keys() >= expected.keys() else 0
    assert refused == expected
