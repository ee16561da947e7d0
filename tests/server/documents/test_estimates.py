"""Cost estimates of operations. Too expensive operations read nothing."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from graphql import (
    GraphQLField,
    GraphQLNamedType,
    GraphQLObjectType,
    Undefined,
    get_named_type,
    is_non_null_type,
)

import schema as api
from datastore.dynamodb.calls import WRITE_UNIT_COST
from datastore.model.identity import Role
from server.documents.document_cache import Documents
from tests.support.earthquake_samples import quake, store
from tests.support.served import NOON, Answer, Served

DOCUMENTS = Documents(api.build(), now=lambda: NOON)
QUERY = DOCUMENTS.schema.type_map["Query"]
PAGE = "query ($n: Int = 50, $all: Boolean!) {photos(first: $n) {nodes {imageId persons @include(if: $all) {name}}}}"


def cost(text: str, variables: dict[str, Any] | None = None) -> float:
    return DOCUMENTS.prepare(text).operation(None).estimate(variables or {}).units


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("{__typename areas me {userId}}", 0.0),
        ('{userProfile(id: "a") {userId}}', 0.5),
        # A match has more than 4 KB at its end.
        ('{match(id: "a") {status}}', 1.0),
        ('{photo(id: "a") {imageId}}', 1.0),
        ('{photo(id: "a", consistent: true) {imageId}}', 2.0),
        ('{user(id: "a", consistent: true) {name}}', 1.0),
        ("query ($id: ID!) {user(id: $id, consistent: true) {name}}", 1.0),
        ("query ($id: ID!) {user(id: $id, consistent: false) {name}}", 0.5),
        # 26 sightings of 350 bytes: three blocks of 4 KB.
        ('{sightings(area: "Harbor") {nodes {id}}}', 1.5),
        ('{sightings(area: "Harbor", first: 1) {nodes {id}}}', 0.5),
        ('{sightings(area: "Harbor", last: 100) {nodes {id}}}', 4.5),
        ('{sightings(area: "Harbor") {nodes {reporter {userId}}}}', 14.0),
        ('{sightings(area: "Harbor") {edges {node {reporter {userId}}} pageInfo {endCursor}}}', 14.0),
        # Concurrent Queries, one for each category or day.
        ('{trending(categories: ["a", "b", "c"]) {sightingCount}}', 4.5),
        # Without the argument all categories count, each with its sightings.
        ("{trending {sightings(first: 10) {nodes {reporter {userId}}}}}", 7.5 + 5 * 10 * 0.5),
        ("{trending(categories: null) {sightings(first: 10) {nodes {reporter {userId}}}}}", 7.5 + 5 * 10 * 0.5),
        # For each post a read may be needed of whether the caller follows its author.
        ('{postsByTag(tag: "a", first: 100) {nodes {text}}}', 3.5 + 100 * 0.5),
        # The search, the caller's followees, and for each result the post and whether the caller follows its author.
        ('{searchPosts(query: "a", first: 100) {nodes {text}}}', 1 + 4 + 100 * 2 * 0.5),
        ('{searchUsers(query: "a", first: 10) {nodes {name}}}', 1 + 10 * 0.5),
        ('{homeFeed(userId: "a", first: 10) {nodes {post {text}}}}', 2.5 + 10 * 2 * 0.5),
        ("{liveMatches {matchId}}", 1.0),
        ("{requestLogs {nodes {route}}}", 1.0),
        # Nearly all logs are of queries: for each log of an ingest many of them are read.
        ("{requestLogs(type: QUERY) {nodes {route}}}", 1.0),
        ("{requestLogs(type: INGEST) {nodes {route}}}", 19.5),
        ("{liveMatches {liveScore {status innings {runs} result {text}}}}", 1.0),
        # The lines and balls of each match are read separately.
        ("{liveMatches {liveScore {batting {runs}}}}", 1.0 + 10 * 1.0),
        ("{liveMatches {...on LiveMatch {liveScore {...all}}}} fragment all on LiveScore {recentBalls {label}}", 11.0),
        ("subscription {liveScores {isSnapshot}}", 11.0),
        # A window of days, and the request log of the query.
        ('{earthquakes(from: "2026-06-25T00:00:00Z", first: 5) {nodes {place}}}', 0.5 + 5),
        ('{earthquakes(from: "2026-06-15T12:00:00Z", first: 5) {nodes {place}}}', 5.5 + 1.5 + 5),
        ('{a: userProfile(id: "a") {userId} b: userProfile(id: "b") {userId}}', 1.0),
        # A field that is selected twice is read once. Parts of one item share one read.
        ('{userProfile(id: "a") {userId} userProfile(id: "a") {trustTier}}', 0.5),
        ('{post(id: "a") {likeCount commentCount mentionedUserIds}}', 1.5),
        # The most expensive of the possible types of an object counts.
        ('{node(id: "a") {... on Match {homeTeam {name} awayTeam {name}} ... on Post {author {name}}}}', 6.5),
        ('{node(id: "a") {id}}', 5.5),
        ('{matches(ids: ["a", "b", "c"]) {homeTeam {name}}}', 4.5),
        # The index of a league's matches does not contain the revision: one read for each match.
        ('{matchesByLeague(leagueCode: "A", first: 10) {nodes {note}}}', 6.5),
        ('{matchesByLeague(leagueCode: "A", first: 10) {nodes {revision}}}', 6.5 + 10),
        ('mutation {likePost(postId: "a") {createdAt}}', 11.0 + 3),
    ],
)
def test_the_cost_of_an_operation_is_that_of_its_patterns(text: str, units: float) -> None:
    assert cost(text) == units


def test_a_fixed_cost_does_not_depend_on_the_arguments() -> None:
    kinds = [kind for kind in DOCUMENTS.schema.type_map.values() if isinstance(kind, GraphQLObjectType)]
    fields = [field for kind in kinds for field in kind.fields.values() if field.args]
    fixed = [(field, price) for field in fields if (price := DOCUMENTS.costs.field_cost(field)).fixed]

    assert any(price.patterns for _, price in fixed)
    for field, price in fixed:
        for given in (True, 7, "a", ["a"] * 9, {"of": ["a"] * 9}):
            assert price.measure(dict.fromkeys(field.args, given), NOON) == price.fixed_cost


def test_variables_and_their_defaults_count() -> None:
    assert cost(PAGE, {"all": False}) == cost("{photos(first: 50) {nodes {imageId}}}") == 4.5
    assert cost(PAGE, {"all": True}) == 4.5 + 50 * 2.0
    assert cost(PAGE, {"all": True, "n": 2}) == 0.5 + 2 * 2.0
    many = "query ($ids: [ID!]!) {matches(ids: $ids) {status}}"
    assert cost(many, {"ids": ["a"] * 7}) == 7.0


@pytest.mark.parametrize("wrong", [None, -1, 0, 10**400, 1e308, float("nan"), float("inf"), "x", [], {}, True, [[[]]]])
def test_variables_of_wrong_types_never_break_an_estimate(wrong: Any) -> None:
    asked = """query ($n: Int, $ids: [ID!]!, $at: DateTime, $skip: Boolean!, $least: Float, $c: [String!]) {
      photos(first: $n) {nodes {user {displayName} persons @skip(if: $skip) {name}}}
      nodes(ids: $ids) {id}
      earthquakes(from: $at, to: $at, minMagnitude: $least) {nodes {place}}
      trending(categories: $c) {sightingCount}
      topAuthors(first: $n) {author {name}}
    }"""
    given = dict.fromkeys(("n", "ids", "at", "skip", "least", "c"), wrong)

    assert 0 < cost(asked, given) < 10_000
    assert 0 < cost(asked) < 10_000


@pytest.mark.parametrize("bound", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59-14:00", "2026-06-25", "25.6.2026", ""])
def test_any_time_may_bound_a_window(bound: str) -> None:
    asked = "query ($at: DateTime) {%s}"
    for arguments in ("from: $at", "to: $at", "from: $at, to: $at"):
        assert 0 < cost(asked % f"earthquakes({arguments}) {{nodes {{place}}}}", {"at": bound}) < 2_000


LONG_AGO = [
    "2016-12-01T00:00:00Z",
    "2016-12-01T00:00:00z",
    "2016-11-30T24:00:00Z",
    "2016-336T00:00:00Z",
    "2016-W48-4T00Z",
]


@pytest.mark.parametrize("start", LONG_AGO)
def test_a_time_counts_in_every_notation(start: str) -> None:
    asked = "query ($at: DateTime) {earthquakes(from: $at, minMagnitude: 9) {nodes {place}}}"

    written = asked.replace(" ($at: DateTime)", "").replace("$at", f'"{start}"')

    assert cost(asked, {"at": start}) == cost(written) > 1_000


@pytest.mark.parametrize("unread", ["2016-13", "", "9999-12-31T24:00:00Z", 2016, True, [], {}])
def test_an_invalid_time_counts_as_the_longest_window(unread: Any) -> None:
    for given in ("from", "to"):
        asked = f"query ($at: DateTime) {{earthquakes({given}: $at) {{nodes {{place}}}}}}"
        assert cost(asked, {"at": unread}) > 1_800


def test_a_window_over_midnight_counts_both_days() -> None:
    window = 'from: "2026-06-24T23:59:00Z", to: "2026-06-25T00:01:00Z"'
    assert cost(f"{{earthquakes({window}, first: 5) {{nodes {{place}}}}}}") == 1.0 + WRITE_UNIT_COST


def test_a_huge_integer_as_an_id_counts_in_its_list() -> None:
    ids = ", ".join([*(f'"{number}"' for number in range(99)), "1" * 5_000])
    assert cost(f"{{matches(ids: [{ids}]) {{status}}}}") == 100.0


def test_lists_multiply_the_cost_beneath_them() -> None:
    def nested(size: int) -> float:
        return cost(
            f"{{photos(first: {size}) {{nodes {{user {{photos(first: {size}) {{nodes {{user {{email}}}}}}}}}}}}}}"
        )

    assert nested(100) > 50 * nested(10)


def test_fragments_cost_at_each_spread() -> None:
    beneath = "author {name} likes(first: 3) {nodes {user {name}}}"
    plain = cost(f'{{post(id: "a") {{{beneath}}}}}')

    assert cost(f'{{post(id: "a") {{...F ...F ... {{...F}}}}}} fragment F on Post {{{beneath}}}') == plain
    twice = f'{{a: post(id: "a") {{...F}} b: post(id: "b") {{...F}}}} fragment F on Post {{{beneath}}}'
    assert cost(twice) == 2 * plain


def test_the_estimate_takes_linear_time() -> None:
    def steps(times: int) -> int:
        documents = Documents(api.build())
        spread = " ".join("...F ... on Post {author {...U}}" for _ in range(times))
        text = f'{{node(id: "a") {{{spread}}}}} fragment F on Post {{author {{...U}}}} fragment U on User {{name}}'
        documents.prepare(text).operation(None).estimate({})
        return documents.costs.steps

    assert steps(60) <= 4.1 * steps(15)


def object_fields(parent: GraphQLNamedType) -> Iterator[tuple[str, GraphQLField]]:
    """Yield the fields with objects that need no arguments."""
    assert isinstance(parent, GraphQLObjectType)
    for name, field in parent.fields.items():
        needed = any(is_non_null_type(one.type) and one.default_value is Undefined for one in field.args.values())
        if isinstance(get_named_type(field.type), GraphQLObjectType) and not needed:
            yield name, field


def priced_fields() -> list[tuple[str, str, GraphQLField]]:
    """Return all fields with access patterns that read or write, each with the names of its type and field."""
    kinds = [kind for kind in DOCUMENTS.schema.type_map.values() if isinstance(kind, GraphQLObjectType)]
    fields = [(kind.name, name, field) for kind in kinds for name, field in kind.fields.items()]
    priced = [(*one, DOCUMENTS.costs.field_cost(one[2])) for one in fields]
    return [one[:3] for one in priced if any(pattern.reads or pattern.writes for pattern in one[3].patterns)]


def test_every_field_that_reads_or_writes_has_a_price() -> None:
    found = {
        f"{kind}.{name}": DOCUMENTS.costs.field_cost(field).measure({}, NOON) for kind, name, field in priced_fields()
    }

    assert len(found) > 100
    assert {name: measured for name, measured in found.items() if measured.units < 0.5 or measured.size < 1} == {}


@pytest.mark.parametrize("argument", ["first", "last"])
def test_larger_pages_never_cost_less(argument: str) -> None:
    fields = [field for _, _, field in priced_fields() if argument in field.args]
    assert fields

    for field in fields:
        price = DOCUMENTS.costs.field_cost(field)
        measured = [price.measure({argument: size}, NOON) for size in (1, 2, 4, 8, 16, 32, 64, 100)]
        assert [one.size for one in measured] == [1, 2, 4, 8, 16, 32, 64, 100]
        assert [one.units for one in measured] == sorted(one.units for one in measured)


def test_longer_lists_of_arguments_never_cost_less() -> None:
    fields = [(name, field) for _, name, field in priced_fields() if DOCUMENTS.costs.field_cost(field)._lists]
    assert {"matches", "nodes", "syncTeams", "syncFixtures", "logEvent", "trending"} <= {name for name, _ in fields}

    for _, field in fields:
        price = DOCUMENTS.costs.field_cost(field)
        (argument,) = price._lists
        units = [price.measure({argument: ["a"] * length}, NOON).units for length in (1, 2, 4, 8, 16, 32, 64, 100)]
        assert units == sorted(units)


@pytest.mark.parametrize("root", [name for name, _ in object_fields(QUERY)])
def test_selecting_more_never_costs_less(root: str) -> None:
    kind = get_named_type(dict(object_fields(QUERY))[root].type)
    plain = cost(f"{{{root} {{__typename}}}}")

    for name, field in object_fields(kind):
        once = cost(f"{{{root} {{{name} {{__typename}}}}}}")
        assert once >= plain
        for inner, _ in object_fields(get_named_type(field.type)):
            assert cost(f"{{{root} {{{name} {{{inner} {{__typename}}}}}}}}") >= once


# Refusals


def windows(number: int) -> str:
    one = 'earthquakes(from: "2016-07-01T00:00:00Z", to: "2026-06-24T00:00:00Z", minMagnitude: 9) {nodes {place}}'
    return "{" + " ".join(f"a{place}: {one}" for place in range(number)) + "}"


async def test_a_too_expensive_operation_is_refused_before_the_first_read(served: Served) -> None:
    answer = await served.ask(windows(30))

    estimate = 30 * (1_900 + 5.0)  # without statistics the maximum for each window, and its log
    assert answer.codes == ["BAD_USER_INPUT"]
    assert answer.errors is not None
    assert answer.errors[0]["extensions"] == {"code": "BAD_USER_INPUT", "estimate": estimate, "limit": 2_000.0}
    assert f"{estimate:,.1f} read units" in answer.errors[0]["message"]
    assert (answer.calls, answer.data) == ([], None)


async def test_the_page_size_in_the_variables_decides(served: Served) -> None:
    asked = "query ($n: Int!) {photos(first: $n) {nodes {user {photos(first: $n) {nodes {persons {name}}}}}}}"

    refused = await served.ask(asked, {"n": 100}, user="ada")
    accepted = await served.ask(asked, {"n": 5}, user="ada")

    assert (refused.codes, refused.calls) == (["BAD_USER_INPUT"], [])
    assert accepted.errors is None


# Estimate and actual

# Operations with full pages, point reads, windows of many days, and writes.
ASKED = [
    ("{earthquakes(first: 100) {nodes {place magnitude}}}", Role.USER),
    ("{earthquakes(first: 25, minMagnitude: 4.5) {nodes {place}}}", Role.USER),
    ("{earthquakes(first: 5) {edges {node {place}}}}", Role.USER),
    ('{a: earthquake(id: "us1") {place} b: earthquake(id: "us2") {place}}', Role.USER),
    ('{sightings(area: "Downtown") {nodes {description reporter {userId}}}}', Role.USER),
    ("{trending {sightingCount sightings {nodes {area}}}}", Role.USER),
    ('mutation {reportSighting(input: {area: "Harbor", category: "Cats", description: "x"}) {area}}', Role.USER),
    ('mutation {createWatch(input: {area: "Harbor", category: "Cats"}) {area}}', Role.USER),
    ('mutation {createPost(input: {text: "Hello #cats"}) {postId author {name}}}', Role.USER),
    ('{homeFeed(userId: "ada") {nodes {post {text likeCount author {name}}}}}', Role.USER),
    ('{postsByAuthor(authorId: "ada") {nodes {text likedByViewer}}}', Role.USER),
    ('mutation {syncTeams(input: [{teamId: "1", name: "One", code: "ONE"}]) {name}}', Role.SYSTEM),
    ("mutation {seedDemo {area}}", Role.ADMIN),
]


async def test_estimates_are_near_the_actual_cost(served: Served) -> None:
    events = [quake(f"us{number}", timedelta(minutes=10 * number)) for number in range(400)]
    await store(served, *events)
    for setup in ("seedDemo {area}", 'createUser(input: {name: "Ada"}) {name}'):
        role = Role.ADMIN if setup.startswith("seed") else Role.USER
        assert (await served.ask(f"mutation {{{setup}}}", user="ada", role=role)).errors is None

    results = {text: await _estimate_and_cost(served, text, role) for text, role in ASKED}

    # Estimates are higher by short pages and shared reads, and hardly ever lower.
    assert {text: one for text, one in results.items() if not 0.8 * one[1] <= one[0] <= 20 * one[1] + 60} == {}
    assert sum(actual for _, actual in results.values()) > 100


async def _estimate_and_cost(served: Served, text: str, role: Role) -> tuple[float, float]:
    """Return the estimate and the actual cost of an operation."""
    answer: Answer = await served.ask(text, user="ada", role=role)
    assert answer.errors is None, answer.errors
    (report,) = served.reports
    logged = WRITE_UNIT_COST * text.count("earthquakes(")
    assert report.cost == sum(call.cost for call in answer.calls) + logged
    return report.estimate, report.cost


def test_writes_count_at_their_price() -> None:
    assert WRITE_UNIT_COST == 5
    # The tags of a photo are no separate items.
    tagged = 'mutation {updatePhoto(id: "a", input: {tags: ["b", "c", "d"]}) {imageId}}'
    assert cost(tagged) == 0.5 + 3 * WRITE_UNIT_COST
    # A transaction counts twice, and each item is also written to its index.
    post = 'mutation {createPost(input: {text: "%s"}) {postId}}'
    assert cost(post % "#a #b #c") - cost(post % "#a") == 2 * 2 * 2 * WRITE_UNIT_COST
    assert cost('mutation {deleteWatch(area: "a", category: "b", watchId: "c") {area}}') == 2 * WRITE_UNIT_COST
