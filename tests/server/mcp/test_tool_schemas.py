"""Marks of tools in a manifest, and the JSON Schemas of tools."""

import json
from typing import Any

import pytest
from graphql import OperationDefinitionNode, parse
from jsonschema import Draft202012Validator, ValidationError

import schema as api
from pipelines.demo import DOCUMENTS
from server.documents.document_cache import Documents
from server.documents.persisted.manifest import ManifestProblem
from server.documents.persisted.tool_marks import MAX_TOOLS
from server.documents.persisted.trusted import prepare_manifest
from server.mcp.json_schema import arguments_schema
from server.mcp.tools import Tool, Toolset
from tests.support.mcp_client import with_tools

TYPENAME = "query Name { __typename }"
MARK = {"description": "Reads."}


@pytest.fixture(scope="module")
def documents() -> Documents:
    return Documents(api.build())


def tool_of(documents: Documents, body: str, **mark: Any) -> Tool:
    raw = with_tools({"id": "it", "body": body, "tool": {"name": "it", "description": "d", **mark}})
    return Toolset(prepare_manifest(documents, raw.encode()).tools)["it"]


def test_a_mark_may_name_nothing_that_the_operation_says(documents: Documents) -> None:
    raw = with_tools(
        {"id": "a", "body": '"""\nRead the\nareas.\n"""\nquery read_areas { areas }', "tool": {}},
        {"id": "b", "body": TYPENAME},
        {"id": "c", "body": TYPENAME, "tool": {"name": "c", "description": "d", "title": "C", "destructive": False}},
    )
    tools = prepare_manifest(documents, raw.encode()).tools

    assert [(tool.document_id, tool.mark.name, tool.mark.description) for tool in tools] == [
        ("a", "read_areas", "Read the\nareas."),
        ("c", "c", "d"),
    ]
    assert (tools[1].mark.title, tools[1].mark.destructive, tools[1].mark.idempotent) == ("C", False, False)


@pytest.mark.parametrize(
    ("body", "mark", "words"),
    [
        (TYPENAME, True, "a: tool is not an object"),
        (TYPENAME, {"describe": "x"}, "a: tool has the member 'describe'; the members are name, title, description,"),
        (TYPENAME, {}, "a: tool.description must have 1 to 2,000 characters"),
        (TYPENAME, {"description": " "}, "a: tool.description must have 1 to 2,000 characters"),
        (TYPENAME, MARK | {"name": "a b"}, "a: tool.name must have 1 to 64 letters, digits, _ or -"),
        (TYPENAME, MARK | {"name": "x" * 65}, "a: tool.name must have 1 to 64 letters, digits, _ or -"),
        ("{ __typename }", MARK, "a: tool.name must have 1 to 64 letters, digits, _ or -"),
        (TYPENAME, MARK | {"title": ""}, "a: tool.title must have 1 to 100 characters"),
        (TYPENAME, MARK | {"destructive": "no"}, "a: tool.destructive must be true or false"),
        (TYPENAME, MARK | {"resultBytes": 1}, "a: tool.resultBytes must be a number from 1,024 to 1,048,576"),
        (TYPENAME, MARK | {"resultBytes": True}, "a: tool.resultBytes must be a number from 1,024 to 1,048,576"),
        (f"{TYPENAME} query Other {{ areas }}", MARK, "a: a tool has one operation, and the document has several"),
        ("subscription S { liveScores { isSnapshot } }", MARK, "a: a tool is a query or a mutation"),
    ],
    ids=str,
)
def test_an_invalid_mark_is_a_problem_of_its_document(documents: Documents, body: str, mark: Any, words: str) -> None:
    with pytest.raises(ManifestProblem) as raised:
        prepare_manifest(documents, with_tools({"id": "a", "body": body, "tool": mark}).encode())

    assert words in str(raised.value)


def test_names_of_tools_are_unique_and_their_number_is_limited(documents: Documents) -> None:
    twice = with_tools(*({"id": name, "body": TYPENAME, "tool": MARK} for name in "ab"), {"id": "c", "body": "{"})
    with pytest.raises(ManifestProblem) as raised:
        prepare_manifest(documents, twice.encode())
    assert "b: a is also the tool Name" in raised.value.problems
    assert any(problem.startswith("c: Syntax Error") for problem in raised.value.problems)

    many = [{"id": f"i{n}", "body": TYPENAME, "tool": MARK | {"name": f"n{n}"}} for n in range(MAX_TOOLS + 1)]
    with pytest.raises(ManifestProblem, match="it has 101 tools, and may have at most 100"):
        prepare_manifest(documents, with_tools(*many).encode())
    assert len(prepare_manifest(documents, with_tools(*many[1:]).encode()).tools) == MAX_TOOLS


def test_arguments_have_the_types_bounds_and_descriptions_of_the_variables(documents: Documents) -> None:
    body = """
    query Q("The least." $least: Float! = 4, $first: Int, $from: DateTime, $kind: SeismicEventKind! = ANY, $ids: [ID!]!)
    { earthquakes(minMagnitude: $least, first: $first, from: $from, kind: $kind) { nodes { eventId } }
      nodes(ids: $ids) { id } }
    """
    found = tool_of(documents, body).input_schema

    Draft202012Validator.check_schema(found)
    assert (found["required"], found["additionalProperties"]) == (["ids"], False)
    properties = found["properties"]
    assert properties["least"] == {"type": "number", "description": "The least.", "default": 4}
    first, kind = properties["first"], properties["kind"]
    assert (first["type"], first["minimum"], first["maximum"]) == (["integer", "null"], 1, 100)
    assert first["description"].startswith("The maximum number of entries from the start of the list")
    assert (properties["from"]["type"], properties["from"]["format"]) == (["string", "null"], "date-time")
    assert (kind["type"], kind["enum"], kind["default"]) == ("string", ["EARTHQUAKE", "OTHER", "ANY"], "ANY")
    assert (properties["ids"]["items"], properties["ids"]["maxItems"]) == ({"type": "string"}, 1_000)


def test_input_objects_are_described_field_by_field(documents: Documents) -> None:
    body = """
    mutation M($input: ReportSightingInput!, $area: String!) {
      reportSighting(input: $input) { id }
      createWatch(input: {area: $area, category: "Cats"}) { id }
    }
    """
    found = tool_of(documents, body).input_schema
    validator = Draft202012Validator(found)
    good = {"input": {"area": "Harbor", "category": "Cats", "description": "A tabby"}, "area": "Harbor"}

    validator.validate(good)
    assert found["properties"]["area"] == {"type": "string", "description": "The area, one of `areas`."}
    assert found["properties"]["input"]["required"] == ["area", "category", "description"]
    bad: list[dict[str, Any]] = [
        {"area": "Harbor"},
        good | {"other": 1},
        good | {"area": None},
        good | {"input": {**good["input"], "areas": 1}},  # type: ignore[dict-item]
        good | {"input": {"area": "Harbor"}},
    ]
    for arguments in bad:
        with pytest.raises(ValidationError):
            validator.validate(arguments)


def test_the_arguments_of_every_root_field_have_schemas(documents: Documents) -> None:
    schema, fields = documents.schema, 0
    for root in (schema.query_type, schema.mutation_type):
        assert root is not None
        for name, field in root.fields.items():
            if not field.args:
                continue
            declared = ", ".join(f"${argument}: {of.type}" for argument, of in field.args.items())
            passed = ", ".join(f"{argument}: ${argument}" for argument in field.args)
            kind = "mutation" if root is schema.mutation_type else "query"
            document = parse(f"{kind} M({declared}) {{ {name}({passed}) {{ __typename }} }}")
            operation = document.definitions[0]
            assert isinstance(operation, OperationDefinitionNode)
            found = arguments_schema(schema, document, operation)
            Draft202012Validator.check_schema(found)
            assert [*found["properties"]] == [*field.args]
            assert all(part.get("description") for part in found["properties"].values()), name
            fields += 1
    assert fields > 80


def test_results_have_the_nulls_aliases_and_fragments_of_the_selection(documents: Documents) -> None:
    body = """
    query Q($id: ID!, $with: Boolean!) {
      it: node(id: $id) { __typename id ...Area ... @include(if: $with) { key: id } ... on Node { same: id } }
      sightings(area: "Harbor") { nodes { reporter { trustTier } } nodes { category @skip(if: $with) } }
    }
    fragment Area on Sighting { area reportedAt }
    """
    found = tool_of(documents, body).output_schema

    Draft202012Validator.check_schema(found)
    assert found["required"] == ["it", "sightings"]
    it, sightings = found["properties"]["it"], found["properties"]["sightings"]
    assert it["type"] == ["object", "null"]
    assert it["required"] == ["__typename", "id", "same"]
    assert [*it["properties"]] == ["__typename", "id", "area", "reportedAt", "key", "same"]
    assert it["properties"]["reportedAt"] == {"type": "string", "format": "date-time"}
    entry = sightings["properties"]["nodes"]["items"]
    assert (entry["type"], entry["required"]) == (["object", "null"], ["reporter"])
    assert entry["properties"]["reporter"]["properties"]["trustTier"]["enum"] == ["BRONZE", "SILVER", "GOLD"]
    assert entry["properties"]["category"] == {"type": "string"}


def test_the_demo_has_ten_tools_over_all_systems(documents: Documents) -> None:
    tools = Toolset(prepare_manifest(documents, DOCUMENTS.read_bytes()).tools)

    assert len(tools) == 10
    assert [name for name, tool in tools.items() if not tool.is_query] == ["report_sighting", "like_post"]
    roots = {key for tool in tools.values() for key in tool.output_schema["properties"]}
    assert {"sightings", "earthquakes", "searchPosts", "liveMatches", "photos"} <= roots
    for tool in tools.values():
        for found in (tool.input_schema, tool.output_schema):
            Draft202012Validator.check_schema(found)
        described = [part.get("description") for part in tool.input_schema["properties"].values()]
        assert all(described), tool.mark.name
    assert len(json.dumps([tool.input_schema | tool.output_schema for tool in tools.values()])) < 20_000
