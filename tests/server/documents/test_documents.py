"""Limits of documents, introspection and directives, and the time that hostile documents take."""

import time
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
from graphql import DocumentNode, get_introspection_query, graphql_sync, parse
from strawberry.utils.str_converters import to_camel_case

import schema as api
from datastore.model.identity import Role
from datastore.model.log_redaction import redact_emails
from server.documents import document_cache as prepared
from server.documents.cost.introspection import Sizes
from server.documents.document_cache import DocumentRejected, Documents
from server.documents.limits import DocumentCounts, DocumentLimits, trusted_limits
from server.documents.settings import DocumentSettings, document_settings
from server.http.graphiql import examples
from server.operations.outcome import format_errors
from server.settings import Settings
from tests.support.hostile_documents import shapes
from tests.support.ports import free_port
from tests.support.served import SECRET, Served
from tests.support.store_engines import ROOT

BOUND_SECONDS = 0.010
# A busy machine is slower: other processes share its caches.
NOISE = 3
FRAGMENT = "fragment F on Query {areas}"
TOO_MUCH = [
    ("characters", "{" + " " * 32_768 + "areas}", 32_768, 32_775),
    ("tokens", "{" + "areas " * 1_000 + "}", 1_000, 1_002),
    ("operations", "".join(f"query q{number} {{areas}}" for number in range(11)), 10, 11),
    ("variables", "query (" + "".join(f"$v{number}: Int " for number in range(101)) + ") {areas}", 100, 101),
    (
        "variableUses",
        "".join(f"query q{number}($v: ID!) {{...F}}" for number in range(10))
        + f"fragment F on Query {{nodes(ids: [{'$v ' * 202}]) {{id}}}}",
        2_000,
        2_020,
    ),
    ("rootFields", "{" + "areas " * 51 + "}", 50, 51),
    ("selections", "{me {" + "role " * 500 + "}}", 500, 501),
    ("depth", "{" + "me {" * 16 + "role" + "}" * 17, 16, 17),
    ("aliases", "{me {" + "".join(f"r{number}: role " for number in range(101)) + "}}", 100, 101),
    ("directives", "{areas " + "@skip(if: true) " * 51 + "}", 50, 51),
    ("fragments", "{...F}" + "".join(f"fragment F{number} on Query {{areas}}" for number in range(101)), 100, 101),
    ("spreads", "{me {role}" + "... on Query {...F}" * 251 + "}" + FRAGMENT, 250, None),
]


@pytest.fixture(scope="module")
def documents() -> Documents:
    return Documents(api.build())


def rejection(documents: Documents, text: str) -> dict[str, Any]:
    with pytest.raises(DocumentRejected) as rejected:
        documents.prepare(text)
    return format_errors(rejected.value.errors)[0]


@pytest.mark.parametrize(("measure", "text", "limit", "found"), TOO_MUCH[:-1], ids=[one[0] for one in TOO_MUCH[:-1]])
def test_an_exceeded_limit_is_reported_with_the_limit_and_the_count(
    documents: Documents, measure: str, text: str, limit: int, found: int
) -> None:
    error = rejection(documents, text)

    assert error["extensions"] == {"code": "BAD_USER_INPUT", "measure": measure, "limit": limit, "found": found}
    assert f"{limit:,}" in error["message"]
    assert f"{found:,}" in error["message"]


def test_fields_that_fragments_multiply_are_counted_without_being_visited_again() -> None:
    levels = "".join(
        f"fragment F{level} on User {{a: posts {{nodes {{author {{...F{level + 1}}}}}}}"
        f" b: posts {{nodes {{author {{...F{level + 1}}}}}}}}}"
        for level in range(30)
    )
    counts = DocumentCounts(
        parse(f'{{user(id: "a") {{...F0}}}}{levels}fragment F30 on User {{name}}'), Sizes(api.build()._schema)
    )

    assert counts.counts["fields"] > 2**30
    assert counts.visited == counts.counts["selections"] == 2 + 30 * 8 + 1


def test_a_cycle_of_fragments_is_reported(documents: Documents) -> None:
    error = rejection(documents, "{...A} fragment A on Query {...B} fragment B on Query {...A}")

    assert error["message"] == "Cannot spread fragment 'A' within itself via 'B'."


async def test_a_refused_document_reads_nothing(served: Served) -> None:
    answer = await served.ask("{" + 'sightings(area: "Downtown") {nodes {id}} ' * 51 + "}")

    assert answer.codes == ["BAD_USER_INPUT"]
    assert answer.calls == []


# Introspection


@pytest.mark.parametrize("everything", [True, False])
def test_full_introspection_passes(documents: Documents, everything: bool) -> None:
    text = get_introspection_query(
        descriptions=everything,
        specified_by_url=everything,
        directive_is_repeatable=everything,
        schema_description=everything,
        input_value_deprecation=everything,
        one_of=everything,
    )

    assert documents.prepare(text).introspects
    assert documents.prepare('{__type(name: "Query") {fields {name type {name ofType {name}}}}}').introspects


@pytest.mark.parametrize(
    ("text", "measure"),
    [
        ("{__schema {types {fields {type {fields {type {fields {name}}}}}}}}", "introspectionNesting"),
        ("{__schema {" + "".join(f"a{n}: types {{name}}" for n in range(17)) + "}}", "introspectionLists"),
        ("{" + "".join(f"a{n}: __schema {{types {{name}}}}" for n in range(17)) + "}", "introspectionLists"),
        ('{__type(name: "Query") {' + "ofType {" * 21 + "name" + "}" * 23, "introspectionDepth"),
        (
            "{__schema {...A ...B}} fragment A on __Schema {types {...T}} fragment B on __Schema {t: types {...T}}"
            "fragment T on __Type {" + "name " * 200 + "...U}"
            "fragment U on __Type {interfaces {...V} possibleTypes {...V} inputFields {type {...V}}}"
            "fragment V on __Type {name}",
            "introspectionFields",
        ),
        (
            "{__schema {"
            + "".join(
                f"t{n}: types {{fields {{{''.join(f'a{m}: type {{...A}} ' for m in range(7))}}}}}" for n in range(3)
            )
            + "}} fragment A on __Type {name kind ofType {name kind ofType {name kind}}}",
            "introspectionValues",
        ),
        (
            "{__schema {" + "".join(f"a{n}: types {{interfaces {{possibleTypes {{...A}}}}}}" for n in range(5)) + "}}"
            "fragment A on __Type {" + "".join(f"n{n}: name " for n in range(50)) + "}",
            "introspectionValues",
        ),
    ],
)
def test_excessive_introspection_is_refused(documents: Documents, text: str, measure: str) -> None:
    assert rejection(documents, text)["extensions"]["measure"] == measure


def values_in(answer: Any) -> int:
    if isinstance(answer, dict):
        return sum(1 + values_in(value) for value in answer.values())
    return sum(map(values_in, answer)) if isinstance(answer, list) else 0


@pytest.mark.parametrize(
    "text",
    [
        get_introspection_query(),
        "{__schema {types {fields {type {name ofType {name ofType {name ofType {name}}}} args {type {name}}}}}}",
        "{__schema {types {fields {type {fields {name}}}}}}",
        "{__schema {types {interfaces {possibleTypes {name}}}}}",
        "{__schema {types {possibleTypes {fields {name}} enumValues {name} inputFields {name}}}}",
        "{__schema {queryType {fields {type {ofType {fields {name}}}}} directives {args {name}}}}",
        '{__type(name: "Query") {fields {args {type {ofType {enumValues {name}}}}}}}',
        '{__type(name: "Node") {possibleTypes {fields {type {name ofType {name}}}}}}',
    ],
)
def test_introspection_values_are_never_underestimated(text: str) -> None:
    schema = api.build()._schema
    result = graphql_sync(schema, text)
    assert result.errors is None

    assert DocumentCounts(parse(text), Sizes(schema)).counts["introspection_values"] >= values_in(result.data) - 1


class TestIntrospectionOff:
    @pytest.fixture
    def settings(self) -> Settings:
        return Settings(
            secret=SECRET, port=free_port(), poll_interval=0.02, documents=DocumentSettings(introspection=False)
        )

    async def test_only_admins_may_introspect(self, served: Served) -> None:
        for text in ("{__schema {queryType {name}}}", '{...F} fragment F on Query {x: __type(name: "Me") {name}}'):
            nobody = await served.ask(text)
            user = await served.ask(text, user="ada")
            admin = await served.ask(text, user="root", role=Role.ADMIN)

            assert nobody.codes == user.codes == ["FORBIDDEN"]
            assert admin.errors is None
        assert (await served.ask("{__typename}")).data == {"__typename": "Query"}

    async def test_no_message_has_suggestions(self, served: Served) -> None:
        for text in MEANT:
            answer = await served.ask(text)
            assert "Did you mean" not in str(answer.errors)
            assert set(answer.codes) == {"BAD_USER_INPUT"}

    async def test_the_page_for_queries_has_no_examples_and_no_schema(self, served: Served) -> None:
        async with served.http.get(f"{served.url}/graphiql/config.json") as response:
            config = await response.json()
        assert (config["examples"], config["schema"]) == (None, None)
        for name in ("examples", "schema"):
            async with served.http.get(f"{served.url}/graphiql/{name}.json") as response:
                assert response.status == 404

    async def test_messages_about_variables_have_no_suggestions(self, served: Served) -> None:
        answer = await served.ask(WINDOW, {"window": "DAI"})

        assert answer.codes == ["BAD_USER_INPUT"]
        assert "DAY" not in str(answer.errors)


WINDOW = "query ($period: TagPeriod!) {trendingTags(period: $period) {tag}}"
MEANT = [
    "{sighting {nodes {id}}}",
    '{sightings(are: "Downtown") {nodes {id}}}',
    'mutation {reportSighting(input: {area: "a", category: "b", description: "c", descriptio: "d"}) {area}}',
    "{trendingTags(period: DAI) {tag}}",
    "{areas @skipp(if: true)}",
    "{me}",
]


def test_with_introspection_messages_have_suggestions(documents: Documents) -> None:
    assert "Did you mean 'sightings'" in rejection(documents, MEANT[0])["message"]
    assert "Did you mean 'area'" in rejection(documents, MEANT[1])["message"]


@pytest.mark.parametrize("directive", ["defer", "stream"])
def test_the_directives_of_incremental_delivery_are_unknown(documents: Documents, directive: str) -> None:
    on = {"defer": "{... @defer {areas}}", "stream": "{areas @stream(initialCount: 1)}"}[directive]

    assert rejection(documents, on)["message"] == f"Unknown directive '@{directive}'."


# The time to prepare a document


def test_every_example_is_accepted(documents: Documents) -> None:
    for example in examples():
        assert documents.prepare(example.query).operations


def test_a_document_of_many_ordinary_parts_is_accepted(documents: Documents) -> None:
    """A Relay app with many components sends nested fragments, one for each component."""
    parts = [
        f"fragment Post{n}_post on Post {{id postId text createdAt likeCount author {{...User{n}_user}}}}"
        f" fragment User{n}_user on User {{id name userId}}"
        for n in range(20)
    ]
    lists = "".join(
        f'list{n}: postsByTag(tag: "t{n}", first: 5) {{edges {{node {{...Post{n}_post}}}}}}' for n in range(20)
    )

    document = documents.prepare(f"query App {{{lists}}} {' '.join(parts)}")

    assert len(document.operations) == 1


def work_on(documents: Documents, text: str) -> Callable[[], object]:
    def tell() -> object:
        try:
            return documents.check(text).operations[0].estimate({})
        except DocumentRejected as rejected:
            return format_errors(rejected.errors)

    return tell


def process_seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


@pytest.mark.proof
@pytest.mark.parametrize("size", [2_048, 16_384])
def test_no_shape_of_document_takes_long(documents: Documents, size: int) -> None:
    slow = {
        shape: least
        for shape, text in shapes(size).items()
        if (least := min(process_seconds(work_on(documents, text)) for _ in range(3))) > NOISE * BOUND_SECONDS
    }

    assert slow == {}


def test_redacting_emails_takes_linear_time() -> None:
    """Logged ids of documents and names of operations may be as long as a request."""
    assert process_seconds(lambda: redact_emails("a" * 50_000)) < 1
    assert redact_emails("a@@b@c#d@e #f@").count("<") == 2


def test_backslashes_in_a_block_string_do_not_hide_its_end(documents: Documents) -> None:
    error = rejection(documents, '{areas(a: """\\\\"""x""") ' + "areas " * 1_000 + '}  # """')

    assert error["extensions"]["measure"] == "tokens"


def test_a_refusal_is_cached(documents: Documents, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "{noSuchField}"
    first = rejection(documents, text)
    monkeypatch.setattr(prepared, "parse", None)

    assert rejection(documents, text) == first


def test_the_cache_is_limited_in_documents_and_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []

    def noted(text: str, **options: bool) -> DocumentNode:
        parsed.append(text)
        return parse(text, **options)

    monkeypatch.setattr(prepared, "parse", noted)
    documents = Documents(api.build())
    small = [f"{{a{number}: areas}}" for number in range(prepared.MAX_CACHED_DOCUMENTS + 1)]
    large = [f"{{b{number}: areas}}{' ' * 30_000}" for number in range(17)]
    for text in (*small, small[-1], small[1], small[0]):
        documents.prepare(text)
    assert parsed == [*small, small[0]]

    parsed.clear()
    for text in (*large, large[-1], large[0]):
        documents.prepare(text)

    assert parsed == [*large, large[0]]


def test_invalid_settings_are_refused() -> None:
    assert document_settings({"GATEWAY_INTROSPECTION": "off", "GATEWAY_MAX_COST": "100"}) == DocumentSettings(
        introspection=False, max_cost=100.0
    )
    assert document_settings({"GATEWAY_MAX_COST": "0"}).max_cost == float("inf")
    for wrong in ({"GATEWAY_INTROSPECTION": "no"}, {"GATEWAY_MAX_COST": "-1"}, {"GATEWAY_MAX_COST": "nan"}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            document_settings(wrong)


def test_limits_are_set_by_name_and_are_ten_times_larger_for_trusted_documents() -> None:
    limits = document_settings({"GATEWAY_DOCUMENT_LIMITS": "tokens=2000, rootFields = 80,depth=40"}).limits

    assert limits == replace(DocumentLimits(), tokens=2000, root_fields=80, depth=40)
    larger = trusted_limits(limits)
    assert (larger.tokens, larger.root_fields, larger.aliases) == (20_000, 800, 1_000)
    assert (larger.depth, larger.characters) == (40, 250_000)
    assert larger.introspection_fields == limits.introspection_fields
    for wrong in (
        "tokens",
        "tokens=",
        "tokens=0",
        "tokens=-1",
        "tokens=1e3",
        "token=5",
        "root_fields=5",
        ",",
        "depth=٣",
    ):
        with pytest.raises(ValueError, match=r"^GATEWAY_DOCUMENT_LIMITS: .*[^.]\.$"):
            document_settings({"GATEWAY_DOCUMENT_LIMITS": wrong})
    documents = Documents(api.build(), limits)
    assert rejection(documents, "{" + "areas " * 81 + "}")["extensions"]["limit"] == 80


@pytest.mark.parametrize(("measure", "text"), [one[:2] for one in TOO_MUCH[:-1]], ids=[one[0] for one in TOO_MUCH[:-1]])
def test_trusted_documents_may_exceed_the_limits_of_other_documents(measure: str, text: str) -> None:
    """The cache keeps the results for trusted and for other documents apart."""
    prepared = Documents(api.build())

    def exceeded(*, trusted: bool) -> object:
        try:
            prepared.prepare(text, trusted=trusted)
        except DocumentRejected as rejected:  # the document may have other errors
            return format_errors(rejected.errors)[0]["extensions"].get("measure")
        return None

    found = [exceeded(trusted=False), exceeded(trusted=True), exceeded(trusted=False)]

    assert found[0] == found[2] == measure
    assert found[1] != measure


def test_the_limits_are_documented() -> None:
    section = (
        (ROOT / "docs/limits-and-cost.md")
        .read_text()
        .partition("### Limits")[2]
        .partition("`GATEWAY_DOCUMENT_LIMITS`")[0]
    )
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    limits = {to_camel_case(field.name): field.default for field in fields(DocumentLimits)}

    for measure, limit in limits.items():
        (row,) = [row for row in rows if f"`{measure}`" in row.split(" | ")[0]]
        assert f"{limit:,}" in row.split(" | ")[1]
