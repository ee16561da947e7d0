"""What operations are estimated to cost, and that those that cost too much read nothing."""

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
        ('{userProfile(userId: "a") {userId}}', 0.5),
        # What a match holds by its end takes more than 4 KB.
        ('{match(id: "a") {status}}', 1.0),
        ('{photo(id: "a") {imageId}}', 1.0),
        ('{photo(id: "a", consistent: true) {imageId}}', 2.0),
        # 26 sightings of 350 bytes: three times 4 KB.
        ('{sightings(area: "Harbor") {nodes {id}}}', 1.5),
        ('{sightings(area: "Harbor", first: 1) {nodes {id}}}', 0.5),
        ('{sightings(area: "Harbor", last: 100) {nodes {id}}}', 4.5),
        ('{sightings(area: "Harbor") {nodes {reporter {userId}}}}', 14.0),
        ('{sightings(area: "Harbor") {edges {node {reporter {userId}}} pageInfo {endCursor}}}', 14.0),
        # Queries side by side, one for each category or day.
        ('{trending(categories: ["a", "b", "c"]) {score}}', 4.5),
        # Without categories they are all, and each has its sightings.
        ("{trending {sightings(first: 10) {nodes {reporter {userId}}}}}", 7.5 + 5 * 10 * 0.5),
        ("{trending(categories: null) {sightings(first: 10) {nodes {reporter {userId}}}}}", 7.5 + 5 * 10 * 0.5),
        # Of each post it may have to be read whether the caller follows its author.
        ('{postsByTag(tag: "a", first: 100) {nodes {text}}}', 3.5 + 100 * 0.5),
        # The search, the caller's followees, and for each result the post and whether the caller follows its author.
        ('{searchPosts(query: "a", first: 100) {nodes {text}}}', 1 + 4 + 100 * 2 * 0.5),
        ('{searchUsers(query: "a", first: 10) {nodes {name}}}', 1 + 10 * 0.5),
        ('{homeFeed(userId: "a", first: 10) {nodes {post {text}}}}', 2.5 + 10 * 2 * 0.5),
        ("{liveMatches {matchId}}", 1.0),
        ("{liveMatches {liveScore {status innings {runs} result {text}}}}", 1.0),
        # The lines and balls of each match are read separately.
        ("{liveMatches {liveScore {batting {runs}}}}", 1.0 + 10 * 1.0),
        ("{liveMatches {...on LiveMatch {liveScore {...all}}}} fragment all on LiveScore {recentBalls {label}}", 11.0),
        ("subscription {liveScores {isSnapshot}}", 11.0),
        # A window of days, and the log of the query.
        ('{earthquakes(start: "2026-06-25T00:00:00Z", first: 5) {nodes {place}}}', 0.5 + 5),
        ('{earthquakes(start: "2026-06-15T12:00:00Z", first: 5) {nodes {place}}}', 5.5 + 1.5 + 5),
        ('{a: userProfile(userId: "a") {userId} b: userProfile(userId: "b") {userId}}', 1.0),
        # A field that is asked for twice is read once; parts of one item are read together.
        ('{userProfile(userId: "a") {userId} userProfile(userId: "a") {trustTier}}', 0.5),
        ('{post(id: "a") {likeCount commentCount mentions}}', 1.5),
        # Of the types an object may be of, the one that costs most.
        ('{node(id: "a") {... on Match {homeTeam {name} awayTeam {name}} ... on Post {author {name}}}}', 6.5),
        ('{node(id: "a") {id}}', 5.5),
        ('{matches(ids: ["a", "b", "c"]) {homeTeam {name}}}', 4.5),
        ('mutation {likePost(postId: "a") {createdAt}}', 11.0),
    ],
)
def test_an_operation_costs_what_its_patterns_read(text: str, units: float) -> None:
    assert cost(text) == units


def test_what_is_fixed_costs_the_same_whatever_its_arguments() -> None:
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
      earthquakes(start: $at, end: $at, minMagnitude: $least) {nodes {place}}
      trending(categories: $c) {score}
      topAuthors(top: $n) {author {name}}
    }"""
    given = dict.fromkeys(("n", "ids", "at", "skip", "least", "c"), wrong)

    assert 0 < cost(asked, given) < 10_000
    assert 0 < cost(asked) < 10_000


@pytest.mark.parametrize("bound", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59-14:00", "2026-06-25", "25.6.2026", ""])
def test_any_moment_may_bound_a_window(bound: str) -> None:
    asked = "query ($at: DateTime) {%s}"
    for arguments in ("start: $at", "end: $at", "start: $at, end: $at"):
        assert 0 < cost(asked % f"earthquakes({arguments}) {{nodes {{place}}}}", {"at": bound}) < 2_000


LONG_AGO = [
    "2016-12-01T00:00:00Z",
    "2016-12-01T00:00:00z",
    "2016-11-30T24:00:00Z",
    "2016-336T00:00:00Z",
    "2016-W48-4T00Z",
]


@pytest.mark.parametrize("start", LONG_AGO)
def test_a_moment_counts_however_it_is_written(start: str) -> None:
    asked = "query ($at: DateTime) {earthquakes(start: $at, minMagnitude: 9) {nodes {place}}}"

    written = asked.replace(" ($at: DateTime)", "").replace("$at", f'"{start}"')

    assert cost(asked, {"at": start}) == cost(written) > 1_000


@pytest.mark.parametrize("unread", ["2016-13", "", "9999-12-31T24:00:00Z", 2016, True, [], {}])
def test_a_moment_that_cannot_be_read_counts_as_the_longest_window(unread: Any) -> None:
    for given in ("start", "end"):
        asked = f"query ($at: DateTime) {{earthquakes({given}: $at) {{nodes {{place}}}}}}"
        assert cost(asked, {"at": unread}) > 1_800


def test_a_window_over_midnight_counts_both_days() -> None:
    window = 'start: "2026-06-24T23:59:00Z", end: "2026-06-25T00:01:00Z"'
    assert cost(f"{{earthquakes({window}, first: 5) {{nodes {{place}}}}}}") == 1.0 + WRITE_UNIT_COST


def test_an_id_that_no_number_holds_shortens_no_list() -> None:
    ids = ", ".join([*(f'"{number}"' for number in range(99)), "1" * 5_000])
    assert cost(f"{{matches(ids: [{ids}]) {{status}}}}") == 100.0


def test_lists_multiply_what_is_beneath_them() -> None:
    def nested(size: int) -> float:
        return cost(
            f"{{photos(first: {size}) {{nodes {{user {{photos(first: {size}) {{nodes {{user {{email}}}}}}}}}}}}}}"
        )

    assert nested(100) > 50 * nested(10)


def test_fragments_cost_where_they_are_spread() -> None:
    beneath = "author {name} likes(first: 3) {nodes {user {name}}}"
    plain = cost(f'{{post(id: "a") {{{beneath}}}}}')

    assert cost(f'{{post(id: "a") {{...F ...F ... {{...F}}}}}} fragment F on Post {{{beneath}}}') == plain
    twice = f'{{a: post(id: "a") {{...F}} b: post(id: "b") {{...F}}}} fragment F on Post {{{beneath}}}'
    assert cost(twice) == 2 * plain


def test_the_estimate_is_made_in_steps_that_grow_with_the_document() -> None:
    def steps(times: int) -> int:
        documents = Documents(api.build())
        spread = " ".join("...F ... on Post {author {...U}}" for _ in range(times))
        text = f'{{node(id: "a") {{{spread}}}}} fragment F on Post {{author {{...U}}}} fragment U on User {{name}}'
        documents.prepare(text).operation(None).estimate({})
        return documents.costs.steps

    assert steps(60) <= 4.1 * steps(15)


def children(parent: GraphQLNamedType) -> Iterator[tuple[str, GraphQLField]]:
    """The fields that hold objects and need no arguments, as they are selected."""
    assert isinstance(parent, GraphQLObjectType)
    for name, field in parent.fields.items():
        needed = any(is_non_null_type(one.type) and one.default_value is Undefined for one in field.args.values())
        if isinstance(get_named_type(field.type), GraphQLObjectType) and not needed:
            yield name, field


def readers() -> list[tuple[str, str, GraphQLField]]:
    """All fields with access patterns that read, with their types."""
    kinds = [kind for kind in DOCUMENTS.schema.type_map.values() if isinstance(kind, GraphQLObjectType)]
    fields = [(kind.name, name, field) for kind in kinds for name, field in kind.fields.items()]
    priced = [(*one, DOCUMENTS.costs.field_cost(one[2])) for one in fields]
    return [one[:3] for one in priced if any(pattern.reads or pattern.writes for pattern in one[3].patterns)]


def test_every_field_that_reads_or_writes_has_a_price() -> None:
    found = {f"{kind}.{name}": DOCUMENTS.costs.field_cost(field).measure({}, NOON) for kind, name, field in readers()}

    assert len(found) > 100
    assert {name: measured for name, measured in found.items() if measured.units < 0.5 or measured.size < 1} == {}


@pytest.mark.parametrize("argument", ["first", "last", "top"])
def test_larger_pages_never_cost_less(argument: str) -> None:
    fields = [field for _, _, field in readers() if argument in field.args]
    assert fields

    for field in fields:
        price = DOCUMENTS.costs.field_cost(field)
        measured = [price.measure({argument: size}, NOON) for size in (1, 2, 4, 8, 16, 32, 64, 100)]
        assert [one.size for one in measured] == [1, 2, 4, 8, 16, 32, 64, 100]
        assert [one.units for one in measured] == sorted(one.units for one in measured)


def test_longer_lists_of_arguments_never_cost_less() -> None:
    fields = [(name, field) for _, name, field in readers() if DOCUMENTS.costs.field_cost(field)._lists]
    assert {"matches", "nodes", "syncTeams", "syncFixtures", "logEvent", "trending"} <= {name for name, _ in fields}

    for _, field in fields:
        price = DOCUMENTS.costs.field_cost(field)
        (argument,) = price._lists
        units = [price.measure({argument: ["a"] * length}, NOON).units for length in (1, 2, 4, 8, 16, 32, 64, 100)]
        assert units == sorted(units)


@pytest.mark.parametrize("root", [name for name, _ in children(QUERY)])
def test_what_holds_more_never_costs_less(root: str) -> None:
    kind = get_named_type(dict(children(QUERY))[root].type)
    plain = cost(f"{{{root} {{__typename}}}}")

    for name, field in children(kind):
        once = cost(f"{{{root} {{{name} {{__typename}}}}}}")
        assert once >= plain
        for inner, _ in children(get_named_type(field.type)):
            assert cost(f"{{{root} {{{name} {{{inner} {{__typename}}}}}}}}") >= once


# Refusals


def windows(number: int) -> str:
    one = 'earthquakes(start: "2016-07-01T00:00:00Z", end: "2026-06-24T00:00:00Z", minMagnitude: 9) {nodes {place}}'
    return "{" + " ".join(f"a{place}: {one}" for place in range(number)) + "}"


async def test_what_costs_too_much_is_refused_before_the_first_read(served: Served) -> None:
    answer = await served.ask(windows(30))

    estimate = 30 * (1_900 + 5.0)  # without statistics the maximum for each window, and its log
    assert answer.codes == ["BAD_USER_INPUT"]
    assert answer.errors is not None
    assert answer.errors[0]["extensions"] == {"code": "BAD_USER_INPUT", "estimate": estimate, "limit": 2_000.0}
    assert f"{estimate:,.1f} read units" in answer.errors[0]["message"]
    assert (answer.calls, answer.data) == ([], None)


async def test_the_page_asked_for_in_variables_decides(served: Served) -> None:
    asked = "query ($n: Int!) {photos(first: $n) {nodes {user {photos(first: $n) {nodes {persons {name}}}}}}}"

    refused = await served.ask(asked, {"n": 100}, user="ada")
    accepted = await served.ask(asked, {"n": 5}, user="ada")

    assert (refused.codes, refused.calls) == (["BAD_USER_INPUT"], [])
    assert accepted.errors is None


# Estimate and actual

# What each has to do with: pages that are full, point reads, windows of many days, writes.
ASKED = [
    ("{earthquakes(first: 100) {nodes {place magnitude}}}", Role.USER),
    ("{earthquakes(first: 25, minMagnitude: 4.5) {nodes {place}}}", Role.USER),
    ("{earthquakes(first: 5) {edges {node {place}}}}", Role.USER),
    ('{a: earthquake(eventId: "us1") {place} b: earthquake(eventId: "us2") {place}}', Role.USER),
    ('{sightings(area: "Downtown") {nodes {description reporter {userId}}}}', Role.USER),
    ("{trending {score sightings {nodes {area}}}}", Role.USER),
    ('mutation {reportSighting(input: {area: "Harbor", category: "Cats", description: "x"}) {area}}', Role.USER),
    ('mutation {createWatch(input: {area: "Harbor", category: "Cats"}) {area}}', Role.USER),
    ('mutation {createPost(input: {text: "Hello #cats"}) {postId author {name}}}', Role.USER),
    ('{homeFeed(userId: "ada") {nodes {post {text likeCount author {name}}}}}', Role.USER),
    ('{postsByAuthor(authorId: "ada") {nodes {text likedByViewer}}}', Role.USER),
    ('mutation {syncTeams(teams: [{teamId: "1", name: "One", code: "ONE"}]) {name}}', Role.SYSTEM),
    ("mutation {seedDemo {area}}", Role.ADMIN),
]


async def test_estimates_are_near_what_operations_cost(served: Served) -> None:
    events = [quake(f"us{number}", timedelta(minutes=10 * number)) for number in range(400)]
    await store(served, *events)
    for setup in ("seedDemo {area}", 'createUser(input: {name: "Ada"}) {name}'):
        role = Role.ADMIN if setup.startswith("seed") else Role.USER
        assert (await served.ask(f"mutation {{{setup}}}", user="ada", role=role)).errors is None

    told = {text: await _told(served, text, role) for text, role in ASKED}

    # More by what is not there to be read (pages that are not full), or was read together; less by next to nothing.
    assert {text: one for text, one in told.items() if not 0.8 * one[1] <= one[0] <= 20 * one[1] + 60} == {}
    assert sum(actual for _, actual in told.values()) > 100


async def _told(served: Served, text: str, role: Role) -> tuple[float, float]:
    """What it was estimated to cost, and what it did."""
    answer: Answer = await served.ask(text, user="ada", role=role)
    assert answer.errors is None, answer.errors
    (report,) = served.reports
    logged = WRITE_UNIT_COST * text.count("earthquakes(")
    assert report.cost == sum(call.cost for call in answer.calls) + logged
    return report.estimate, report.cost


def test_writes_count_as_they_are_paid() -> None:
    assert WRITE_UNIT_COST == 5
    # A photo's tags are no items of their own.
    tagged = 'mutation {updatePhoto(input: {imageId: "a", tags: ["b", "c", "d"]}) {imageId}}'
    assert cost(tagged) == 0.5 + 3 * WRITE_UNIT_COST
    # A transaction counts twice, and each item once more in its index.
    post = 'mutation {createPost(input: {text: "%s"}) {postId}}'
    assert cost(post % "#a #b #c") - cost(post % "#a") == 2 * 2 * 2 * WRITE_UNIT_COST
    assert cost('mutation {deleteWatch(area: "a", category: "b", watchId: "c") {area}}') == 2 * WRITE_UNIT_COST
