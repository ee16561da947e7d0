"""`_entities` and `_service` of a federation subgraph: reads, callers, bounds, cost, and the schema."""

from dataclasses import replace
from typing import Any

import pytest

import schema as api
from datastore.dynamodb.calls import Call
from datastore.keyspace.matches.fixtures import FIXTURES
from resolvers.shared.global_ids import LONGEST_GLOBAL_ID, global_id
from server.documents.cost.refusals import TooCostly
from server.documents.document_cache import Documents
from server.documents.settings import DocumentSettings
from server.settings import Settings
from tests.support.answers import codes_and_fields, data_of
from tests.support.caller_kinds import NODES, ask_as_caller, every_caller, first_id, prepare_nodes
from tests.support.earthquake_samples import quake, store
from tests.support.feed_steps import create_profiles
from tests.support.match_documents import DOCUMENT, FIXTURE, write_match_items
from tests.support.served import Answer, Served

ENTITIES = "query ($given: [_Any!]!) { _entities(representations: $given) { __typename ... on Node { id } } }"
LOCAL_KEYS = {kind.declaration.name: kind.declaration.local_key for kind in api.NODES}
SDL = "{ _service { sdl } }"


@pytest.fixture(params=[True, False], ids=["compiled", "interpreted"])
def settings(settings: Settings, request: pytest.FixtureRequest) -> Settings:
    return replace(settings, documents=DocumentSettings(federation=True, compiles=request.param))


async def entities(served: Served, *given: Any, query: str = ENTITIES, user: str | None = None) -> Answer:
    return await served.ask(query, {"given": given}, user=user)


def number_of_keys(call: Call) -> int:
    return sum(len(of_table["Keys"]) for of_table in call.request["RequestItems"].values())


async def test_representations_of_five_types_are_one_batch(served: Served) -> None:
    await create_profiles(served, "u1")
    await store(served, quake("q1"))
    write_match_items(served, *DOCUMENT)
    stored = {"Earthquake": "q1", "User": "u1", "Match": "m1", "Team": "10", "League": "L"}
    given: list[dict[str, str]] = []
    for name, key in stored.items():
        (field,) = LOCAL_KEYS[name]
        given += [{"__typename": name, "id": global_id(name, key)}]
        given += [{"__typename": name, field: f"other-{number}"} for number in range(19)]

    answer = await entities(served, *given)

    found = data_of(answer)["_entities"]
    assert found[::20] == [{"__typename": name, "id": global_id(name, key)} for name, key in stored.items()]
    assert [entity for entity in found if entity is not None] == found[::20]
    assert len(found) == 100
    (call,) = answer.calls
    assert call.operation == "BatchGetItem"
    assert (len(call.tables), number_of_keys(call)) == (5, 100)


async def test_equal_objects_are_read_once(served: Served) -> None:
    write_match_items(served, *DOCUMENT)
    keys = {"id": global_id("Match", "m1")}, {"matchId": "m1"}, {"matchId": global_id("Match", "m1")}

    answer = await entities(served, *[{"__typename": "Match", **key} for key in keys])

    assert data_of(answer)["_entities"] == [{"__typename": "Match", "id": global_id("Match", "m1")}] * 3
    assert answer.made == ["GetItem cricket-fixtures"]


@every_caller
async def test_callers_receive_the_entities_that_nodes_returns(served: Served, caller: str) -> None:
    """Each type, by each of its keys: the objects and the errors are those of `nodes`."""
    await prepare_nodes(served)
    by_id, by_local_key, ids = [], [], []
    for name, node in NODES.items():
        found = await ask_as_caller(served, "system", f"{{ {node.selection} }}")
        ids.append(first_id(found.data))
        by_id.append({"__typename": name, "id": ids[-1]})
        fields = " ".join(LOCAL_KEYS[name])
        if fields:
            query = f"query ($id: ID!) {{ node(id: $id) {{ __typename ... on {name} {{ {fields} }} }} }}"
            by_local_key.append((await ask_as_caller(served, "system", query, {"id": ids[-1]})).data["node"])

    nodes = await ask_as_caller(
        served, caller, "query ($ids: [ID!]!) { nodes(ids: $ids) { __typename id } }", {"ids": ids}
    )
    read_by_id = await ask_as_caller(served, caller, ENTITIES, {"given": by_id})
    read_by_local_key = await ask_as_caller(served, caller, ENTITIES, {"given": by_local_key})

    assert read_by_id.data["_entities"] == nodes.data["nodes"]
    assert found_by_type(read_by_id, by_id) == found_by_type(nodes, by_id)
    with_local_key = {given["__typename"] for given in by_local_key}
    assert with_local_key == {name for name, key in LOCAL_KEYS.items() if key}
    expected = {name: found for name, found in found_by_type(nodes, by_id).items() if name in with_local_key}
    assert found_by_type(read_by_local_key, by_local_key) == expected


def found_by_type(answer: Answer, given: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the id of each object, or the code of its error, by its type."""
    (found,) = answer.data.values()
    codes = {error["path"][1]: error["extensions"]["code"] for error in answer.errors or ()}
    return {
        each["__typename"]: codes.get(place) or (entity and entity["id"])
        for place, (each, entity) in enumerate(zip(given, found, strict=True))
    }


MATCH = {"__typename": "Match", "matchId": "m1"}
USER_ID = global_id("User", "ada")


# Representations that are refused, and the field that the error names, after `representations[…]`.
INVALID: list[tuple[Any, str]] = [
    # No type, or none with a key.
    ({}, ""),
    ("Match", ""),
    (5, ""),
    ([], ""),
    ({"matchId": "m1"}, ""),
    ({"__typename": 5, "matchId": "m1"}, ""),
    ({"__typename": "Nothing", "id": "x"}, ".__typename"),
    ({"__typename": "PageInfo", "id": "x"}, ".__typename"),
    ({"__typename": "Query", "id": "x"}, ".__typename"),
    # No key, or a part of one.
    ({"__typename": "Match"}, ""),
    ({"__typename": "Match", "teamId": "10"}, ""),
    ({"__typename": "TeamSeason", "teamId": "10"}, ""),
    ({"__typename": "Photo", "imageId": "i1"}, ""),
    # A key that is no text, or too long.
    ({"__typename": "Match", "matchId": None}, ".matchId"),
    ({"__typename": "Match", "matchId": True}, ".matchId"),
    ({"__typename": "Match", "matchId": 1.5}, ".matchId"),
    ({"__typename": "Match", "matchId": ["m1"]}, ".matchId"),
    ({"__typename": "Match", "matchId": "x" * (LONGEST_GLOBAL_ID + 1)}, ".matchId"),
    ({"__typename": "Match", "id": None}, ".id"),
    # A key that no stored item can have.
    ({"__typename": "Match", "matchId": ""}, ""),
    ({"__typename": "Match", "matchId": "x" * LONGEST_GLOBAL_ID}, ""),
    # A global id of another type, or of none.
    ({"__typename": "Match", "id": "m1"}, ".id"),
    ({"__typename": "Match", "id": USER_ID}, ".id"),
    ({"__typename": "UserProfile", "id": USER_ID}, ".id"),
    ({"__typename": "Match", "id": global_id("Match", "m1", "m2")}, ".id"),
    ({"__typename": "Match", "matchId": USER_ID}, ".matchId"),
    # The keys of two objects.
    ({"__typename": "Match", "id": global_id("Match", "m1"), "matchId": "m2"}, ""),
]


# A response has at most 20 errors.
@pytest.mark.parametrize("cases", [INVALID[:14], INVALID[14:]], ids=["types", "keys"])
async def test_an_invalid_representation_fails_alone(served: Served, cases: list[tuple[Any, str]]) -> None:
    write_match_items(served, *DOCUMENT)

    answer = await entities(served, MATCH, *[given for given, _ in cases], MATCH)

    match = {"__typename": "Match", "id": global_id("Match", "m1")}
    assert answer.data["_entities"] == [match, *[None] * len(cases), match]
    refused = {error["path"][1]: error["extensions"] for error in answer.errors or ()}
    assert {place: (given["code"], given["field"]) for place, given in refused.items()} == {
        place: ("BAD_USER_INPUT", f"representations[{place}]{field}") for place, (_, field) in enumerate(cases, 1)
    }
    assert answer.made == ["GetItem cricket-fixtures"]


async def test_a_key_that_is_too_long_names_the_limit(served: Served) -> None:
    answer = await entities(served, {"__typename": "User", "userId": "x" * 5000})

    assert answer.errors is not None
    assert answer.errors[0]["message"] == "`representations[0].userId` must be text of at most 4,096 characters."
    assert answer.errors[0]["extensions"]["limit"] == LONGEST_GLOBAL_ID


async def test_more_than_100_representations_are_refused(served: Served) -> None:
    answer = await entities(served, *[MATCH] * 101)

    assert (answer.data, answer.calls) == (None, [])
    assert answer.errors is not None
    (error,) = answer.errors
    assert error["message"] == "`representations` may contain at most 100 representations, not 101."
    assert error["extensions"] == {"code": "BAD_USER_INPUT", "field": "representations", "limit": 100}


async def test_fields_of_no_key_are_ignored(served: Served) -> None:
    write_match_items(served, *DOCUMENT)

    answer = await entities(served, {**MATCH, "leagueCode": "altered", "nested": {"a": [1]}})

    assert data_of(answer)["_entities"] == [{"__typename": "Match", "id": global_id("Match", "m1")}]


async def test_representations_may_be_literals(served: Served) -> None:
    write_match_items(served, *DOCUMENT)
    query = """query ($id: ID!) { _entities(representations: [
      {__typename: "Match", matchId: $id}, {__typename: "Team", teamId: 10}, {__typename: "Team", teamId: %s}
    ]) { __typename ... on Match { leagueCode } ... on Team { teamId } } }"""

    answer = await served.ask(query % ("9" * 30), {"id": "m1"})

    assert answer.data["_entities"] == [
        {"__typename": "Match", "leagueCode": "IPL"},
        {"__typename": "Team", "teamId": "10"},
        None,
    ]
    assert codes_and_fields(answer) == [("BAD_USER_INPUT", "representations[2].teamId")]


async def test_fields_of_entities_are_read_in_batches(served: Served) -> None:
    write_match_items(served, *DOCUMENT, (FIXTURES, FIXTURE | {"leagueId": "L"}))
    query = """query ($given: [_Any!]!) { _entities(representations: $given) {
      ... on Match { matchId league { leagueId } } ... on TeamSeason { teamId team { teamId } }
    } }"""

    answer = await entities(served, MATCH, {"__typename": "TeamSeason", "seasonId": "s1", "teamId": "10"}, query=query)

    assert data_of(answer)["_entities"] == [
        {"matchId": "m1", "league": {"leagueId": "L"}},
        {"teamId": "10", "team": {"teamId": "10"}},
    ]
    assert answer.made == [
        "BatchGetItem cricket-fixtures+cricket-team-seasons",
        "BatchGetItem cricket-leagues+cricket-teams",
    ]


async def test_operations_with_entities_are_compiled(served: Served) -> None:
    documents = served.gateway.server.documents
    compiles = served.gateway.settings.documents.compiles

    data_of(await entities(served, MATCH))

    program = documents.prepare(ENTITIES).operation(None).program
    assert (program.compiled is not None) is compiles
    assert isinstance(data_of(await served.ask(SDL))["_service"]["sdl"], str)


# Cost

DOCUMENTS = Documents(api.build(federation=True))


def entity_cost(query: str, *given: Any) -> float:
    return DOCUMENTS.prepare(query).operation(None).estimate({"given": [*given]}).units


def test_each_representation_is_charged_by_its_type() -> None:
    user, team = {"__typename": "User", "userId": "a"}, {"__typename": "Team", "teamId": "1"}

    assert entity_cost(ENTITIES, user) == 0.5
    assert entity_cost(ENTITIES, *[user] * 7, *[team] * 3) == 5.0
    assert entity_cost(ENTITIES, MATCH) == 1.0
    # The post, the follow that may decide whether the caller sees it, and the comment.
    assert entity_cost(ENTITIES, {"__typename": "Comment", "postId": "p", "commentId": "c"}) == 1.5
    # More are refused, unknown types cost nothing.
    assert entity_cost(ENTITIES, *[user] * 200) == 50.0
    assert entity_cost(ENTITIES, {"__typename": "Nothing"}, {}, None, 5) == 0.0


def test_the_fields_of_a_type_are_charged_for_its_representations() -> None:
    query = """query ($given: [_Any!]!) { _entities(representations: $given) {
      ...on Match { league { name } homeTeam { name } } ...on User { posts(first: 10) { nodes { text } } } } }"""
    user = {"__typename": "User", "userId": "a"}
    of_match = entity_cost('{ match(id: "a") { league { name } homeTeam { name } } }')
    of_user = entity_cost('{ user(id: "a") { posts(first: 10) { nodes { text } } } }')

    assert entity_cost(query, MATCH, MATCH, user) == 2 * of_match + of_user
    assert entity_cost(query, {"__typename": "Team", "teamId": "1"}) == 0.5


def test_costly_representations_are_refused() -> None:
    query = """query ($given: [_Any!]!) { _entities(representations: $given) {
      ... on User { posts(first: 50) { nodes { likedByViewer author { name } } } } } }"""
    operation = DOCUMENTS.prepare(query).operation(None)
    given = {"given": [{"__typename": "User", "userId": str(number)} for number in range(100)]}

    with pytest.raises(TooCostly):
        DOCUMENTS.estimate(operation, given)


def test_deferred_fragments_are_counted_by_type() -> None:
    documents = Documents(api.build(incremental=True, federation=True))
    query = """query ($given: [_Any!]!) { _entities(representations: $given) {
      ... on Match { matchId ... @defer { leagueCode } } ... on Team { teamId } } }"""
    given = {"given": [MATCH] * 3}

    assert documents.prepare(query).operation(None).parts(given) == 3


def test_values_are_counted_by_type() -> None:
    query = "query ($given: [_Any!]!) { _entities(representations: $given) { ... on Team { a: name b: name } } }"
    operation = DOCUMENTS.prepare(query).operation(None)

    assert operation.estimate({"given": [{"__typename": "Team", "teamId": "1"}] * 3}).values == 1 + 3 * 2
    assert operation.estimate({"given": [{"__typename": "User", "userId": "1"}] * 3}).values == 1


# The schema of the subgraph


async def test_the_subgraph_is_the_printed_one(served: Served) -> None:
    assert data_of(await served.ask(SDL))["_service"]["sdl"] == api.federation_sdl()


async def test_the_subgraph_counts_as_introspection(served: Served) -> None:
    few, many = (" ".join(f"s{number}: _service {{ sdl }}" for number in range(count)) for count in (3, 4))

    assert data_of(await served.ask(f"{{ {few} }}")).keys() == {"s0", "s1", "s2"}
    answer = await served.ask(f"{{ {many} }}")
    assert answer.codes == ["BAD_USER_INPUT"]
    assert answer.errors is not None
    assert answer.errors[0]["extensions"]["measure"] == "introspectionValues"
