"""The authorization of each field, nested field, node and subscription of the declared patterns, by kind of caller.

The cases are those of the contract. They are compared with the declarations: a declared pattern without a case fails a
test.
"""

import pytest

import schema as api
from datastore.keyspace import PATTERNS
from datastore.model.access_patterns import AccessPattern, Who
from tests.support.caller_kinds import CALLERS, NODES, add_nodes, ask_as_caller, every_caller, first_id
from tests.support.contract import FIELDS, PAGES, hints, prepare_all
from tests.support.contract import SUBSCRIPTIONS as FOLLOWED
from tests.support.contract.pages import FORBIDDEN, SIGN_IN, Field, Nested, Owner
from tests.support.served import Served

ALLOWED: list[str] = []


@pytest.fixture
async def prepared(served: Served) -> dict[str, str]:
    """Store data of Ada in every system. Return the texts that the operations need."""
    return await prepare_all(served)


def patterns_of_field(field: str) -> list[AccessPattern]:
    return [pattern for pattern in PATTERNS if field in pattern.fields]


def expected_refusal(field: Field, caller: str) -> list[str]:
    """Return the codes with which the declared patterns of a root field refuse a caller; `ALLOWED` if they do not."""
    patterns, role = patterns_of_field(field.name), CALLERS[caller].role
    restricted = [pattern for pattern in patterns if pattern.who is not Who.ANY]
    if not restricted:
        return ALLOWED
    if caller == "anonymous":
        return SIGN_IN
    if any(pattern.who is not Who.USER and role.value not in (pattern.who, *pattern.also) for pattern in restricted):
        return FORBIDDEN
    if caller == "system" and field.by_email:
        return FORBIDDEN
    allowed = {
        None: CALLERS.keys(),
        Owner.NAMED: {"owner", "admin", "system"},
        Owner.STORED: {"owner"},
        Owner.STORED_OR_ADMIN: {"owner", "admin"},
    }
    return ALLOWED if caller in allowed[field.owner] else FORBIDDEN


@pytest.mark.proof
@every_caller
async def test_root_fields(served: Served, prepared: dict[str, str], caller: str) -> None:
    answered, called = {}, []
    for name, field in FIELDS.items():
        answer = await ask_as_caller(served, caller, field.text(prepared))
        answered[name] = [code for code in answer.codes if code in SIGN_IN + FORBIDDEN]
        if answered[name] and answer.calls and field.owner not in (Owner.STORED, Owner.STORED_OR_ADMIN):
            called.append(name)
    assert answered == {name: expected_refusal(field, caller) for name, field in FIELDS.items()}, (
        "Authorize each field with `require` and its pattern. If the arguments or the item name the owner, state "
        "`owner` in the row in tests/support/contract/."
    )
    assert called == [], "These fields read before they authorize: call `require` first."


DATA_OF_ADA = """{
  watches(userId: "ada") { watchId }
  device(userId: "ada") { deviceToken platform }
  liveActivities(userId: "ada") { nodes { status } }
  matchFollow(matchId: "m1") { teamId }
  post(id: "p1") { text visibility }
  user(id: "ada") { name bio followingCount }
  photo(id: "i1", takenAt: "2023-01-01T00:00:00Z") { description tags faces { faceId } }
  photoUser(email: "ada@example.com") { displayName uploadLimit uploadCount }
  userProfile(id: "ada") { reportTotal }
}"""


@pytest.mark.parametrize("caller", ["anonymous", "stranger"])
async def test_other_callers_cannot_change_the_data_of_ada(
    served: Served, prepared: dict[str, str], caller: str
) -> None:
    before = await ask_as_caller(served, "owner", DATA_OF_ADA)
    assert before.errors is None
    for field in FIELDS.values():
        await ask_as_caller(served, caller, field.text(prepared))
    assert (await ask_as_caller(served, "owner", DATA_OF_ADA)).data == before.data


NESTED: dict[str, Nested] = {nested.name: nested for page in PAGES for nested in page.nested}


def test_every_restricted_nested_field_has_a_case() -> None:
    restricted = [pattern for pattern in PATTERNS if pattern.who is not Who.ANY]
    declared = {field for pattern in restricted for field in pattern.fields if "." in field}
    page = "the page of its system in tests/support/contract/"
    assert hints(page, declared, {*NESTED}, "`Nested({!r}, ...)`") == []


@every_caller
async def test_nested_fields(served: Served, prepared: dict[str, str], caller: str) -> None:
    assert (await ask_as_caller(served, "owner", 'mutation { likePost(postId: "p1") { postId } }')).errors is None
    seen = {}
    for name, nested in NESTED.items():
        answer = await ask_as_caller(served, caller, f"{{ parent: {nested.selection} }}")
        parent = (answer.data or {}).get("parent")
        seen[name] = answer.codes or (parent["value"] if parent else None)
    assert seen == {name: nested.expected[caller] for name, nested in NESTED.items()}


def test_every_type_that_node_reads_has_a_case() -> None:
    node = api.build()._schema.get_type("Node")
    declared = {kind.name for kind in api.build()._schema.get_possible_types(node)}  # type: ignore[arg-type]
    page = "`nodes` of the page of its system in tests/support/contract/"
    assert hints(page, declared, {*NODES}, "`NodeType({!r}, ...)`") == []
    assert {kind.restricted for kind in NODES.values() if kind.restricted} == {
        pattern.id for pattern in patterns_of_field("node") if pattern.who is not Who.ANY
    }, f"State the restricted patterns of `node` as `restricted` in {page}."


@every_caller
async def test_nodes(served: Served, prepared: dict[str, str], caller: str) -> None:
    await add_nodes(served)
    seen, read, expected = {}, {}, {}
    for kind, node in NODES.items():
        found = await ask_as_caller(served, "system", f"{{ {node.selection} }}")
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
        restricted = [pattern for pattern in patterns_of_field("node") if pattern.id == node.restricted]
        expected[kind] = (node_refusal(restricted[0], caller) if restricted else ALLOWED) or [kind]
    assert seen == expected
    assert read == expected


def node_refusal(pattern: AccessPattern, caller: str) -> list[str]:
    if caller == "system" or CALLERS[caller].role.value in pattern.also:
        return ALLOWED
    if caller == "anonymous":
        return SIGN_IN
    if pattern.who is Who.USER:
        return FORBIDDEN if caller == "stranger" else ALLOWED
    return FORBIDDEN


# The server ends a connection that sends very many messages at once. All errors arrive long before.
MAX_PINGS = 300


@every_caller
async def test_subscriptions(served: Served, prepared: dict[str, str], caller: str) -> None:
    """Refused callers get an error at once. The others get nothing, or the first event of the subscription."""
    who = CALLERS[caller]
    url = served.url.replace("http", "ws") + "/graphql"
    async with served.http.ws_connect(url, protocols=["graphql-transport-ws"]) as socket:
        headers = served.headers(who.user, who.role, who.email)
        await socket.send_json({"type": "connection_init", "payload": headers})
        assert (await socket.receive_json(timeout=10))["type"] == "connection_ack"
        for name, followed in FOLLOWED.items():
            query = f"subscription {{ {followed.selection} }}"
            await socket.send_json({"id": name, "type": "subscribe", "payload": {"query": query}})
        # The socket answers pings in order, so most errors arrive before the first pong, the others within some pings.
        refused: dict[str, list[str]] = {}
        refusal = SIGN_IN if caller == "anonymous" else FORBIDDEN
        expected = {name: refusal for name, followed in FOLLOWED.items() if followed.is_personal}
        if caller not in ("anonymous", "stranger"):
            expected = {}
        quiet = pings = 0
        while quiet < 20 and pings < MAX_PINGS:
            pings += 1
            await socket.send_json({"type": "ping"})
            while (message := await socket.receive_json(timeout=10))["type"] != "pong":
                errors = message.get("payload", []) if message["type"] == "error" else []
                if message["type"] == "next":
                    errors = message["payload"].get("errors", [])
                if errors:
                    refused[message["id"]] = [error["extensions"]["code"] for error in errors]
                quiet = 0
            quiet = quiet + 1 if refused.keys() >= expected.keys() else 0
    assert refused == expected, "Authorize the subscription with `require` before it follows the table."
