"""Tools of MCP, as the official SDK's clients list and call them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp.types import CallToolResult, TextContent, TextResourceContents

from datastore.keyspace.page import page
from datastore.model.identity import Role
from server.documents.settings import DocumentsMode
from server.mcp.tools import ResultTooLarge
from server.operations.request import Transport
from server.settings import Settings
from tests.support.mcp_client import connected, load_manifest, send_message, settings, tools_manifest, with_tools
from tests.support.served import Answer, Served, call_name
from tests.support.sightings import report_sighting
from tests.support.store_engines import ROOT

__all__ = ["settings", "tools_manifest"]

LONG = "{ " + " ".join(f"a{number}: areas" for number in range(20)) + " }"
REPORT_LONG = """
mutation Long($text: String!) {
  reportSighting(input: {area: "Harbor", category: "Cats", description: $text}) {
    a: description b: description c: description d: description e: description f: description g: description
  }
}
"""


def error_of(result: CallToolResult) -> Any:
    """Return the first error of a failed call."""
    assert result.is_error
    assert result.structured_content is None
    (content,) = result.content
    assert isinstance(content, TextContent)
    return json.loads(content.text)["errors"][0]


def calls_of_tools(served: Served) -> list[str]:
    assert {report.transport for report in served.reports} == {Transport.MCP}
    return sorted(call_name(call) for report in served.reports for call in report.latest_calls)


async def test_a_tool_runs_its_document_with_the_calls_of_the_operation(served: Served) -> None:
    sighting = await report_sighting(served)
    async with connected(served) as session:
        served.reports.clear()
        result = await session.call_tool("active_sightings", {"area": "Downtown", "first": 1})

    assert calls_of_tools(served) == ["GetItem blip", "Query blip"]
    assert not result.is_error
    assert result.structured_content is not None
    (node,) = result.structured_content["sightings"]["nodes"]
    assert (node["sightingId"], node["reporter"]) == (sighting["sightingId"], {"trustTier": "BRONZE"})
    (content,) = result.content
    assert isinstance(content, TextContent)
    assert json.loads(content.text) == result.structured_content


async def test_a_mutation_runs_as_the_caller_of_the_token(served: Served) -> None:
    arguments = {"area": "Harbor", "category": "Cats", "description": "A tabby"}
    async with connected(served) as anonymous:
        refused = await anonymous.call_tool("report_sighting", arguments)
    async with connected(served, served.headers("ada", Role.USER)) as session:
        served.reports.clear()
        result = await session.call_tool("report_sighting", arguments)

    assert error_of(refused)["extensions"]["code"] == "UNAUTHENTICATED"
    assert calls_of_tools(served) == ["GetItem blip", "GetItem blip", "TransactWriteItems blip"]
    assert result.structured_content is not None
    assert result.structured_content["reportSighting"]["reporter"]["reportTotal"] == 1


async def test_a_call_with_an_idempotency_key_runs_once(served: Served) -> None:
    arguments = {"area": "Harbor", "category": "Cats", "description": "A tabby"}
    headers = served.headers("ada", Role.USER)
    params = {"name": "report_sighting", "arguments": arguments}
    by_meta: list[Any] = []
    for _ in range(2):
        status, answer, _ = await send_message(
            served, "tools/call", {**params, "_meta": {"idempotencyKey": "one"}}, **headers
        )
        assert status == 200
        by_meta.append(answer["result"]["structuredContent"])
    served.reports.clear()
    by_header = await send_message(served, "tools/call", params, **headers, Idempotency_Key="one")
    invalid = await send_message(served, "tools/call", {**params, "_meta": {"idempotencyKey": 1}}, **headers)

    assert by_meta[0] == by_meta[1] == by_header[1]["result"]["structuredContent"]
    assert served.reports[0].replayed
    assert "BAD_USER_INPUT" in invalid[1]["result"]["content"][0]["text"]


async def test_the_list_describes_arguments_results_and_effects(served: Served) -> None:
    async with connected(served) as session:
        tools = {tool.name: tool for tool in (await session.list_tools()).tools}
        assert served.reports == []

    assert len(tools) == 10
    quakes, report, like = tools["recent_earthquakes"], tools["report_sighting"], tools["like_post"]
    assert quakes.title == "Recent earthquakes"
    assert quakes.description is not None
    assert quakes.description.startswith("List earthquakes of a time window and magnitude")
    assert quakes.input_schema["properties"]["first"]["maximum"] == 100
    assert quakes.output_schema is not None
    assert quakes.output_schema["required"] == ["earthquakes"]
    hints = [
        (tool.annotations.read_only_hint, tool.annotations.destructive_hint, tool.annotations.idempotent_hint)
        for tool in (quakes, report, like)
        if tool.annotations
    ]
    assert hints == [(True, None, None), (False, False, False), (False, False, True)]


async def test_errors_of_graphql_are_errors_of_the_tool(served: Served) -> None:
    async with connected(served) as session:
        of_field = error_of(await session.call_tool("active_sightings", {"area": "Atlantis"}))
        of_variable = error_of(await session.call_tool("active_sightings", {"area": 1}))
        unknown = error_of(await session.call_tool("active_sightings", {"place": "Downtown"}))
        with pytest.raises(MCPError, match=r"There is no tool 'nothing': see tools/list\."):
            await session.call_tool("nothing", {})

    assert of_field["message"] == ("`area` must be one of: Downtown, Midtown, Harbor, Old Town, University, Riverside.")
    assert (of_field["extensions"], of_field["path"]) == ({"code": "BAD_USER_INPUT", "field": "area"}, ["sightings"])
    assert of_variable["extensions"]["code"] == "BAD_USER_INPUT"
    assert "$area" in of_variable["message"]
    assert unknown["message"] == "The tool active_sightings has no argument `place`. Its arguments: after, area, first."


async def test_a_client_of_the_version_without_a_handshake_is_served(served: Served) -> None:
    await report_sighting(served)
    async with Client(f"{served.url}/mcp") as client:
        assert client.protocol_version == "2026-07-28"
        result = await client.call_tool("trending_categories", {"window": "SIX_HOURS"})
        resources = [resource.name for resource in (await client.list_resources()).resources]

    assert result.structured_content is not None
    assert result.structured_content["trending"][0] == {"category": "Cats", "sightingCount": 1}
    assert resources == ["schema", "access-patterns"]


async def test_resources_are_the_schema_and_the_access_patterns(served: Served) -> None:
    async with connected(served) as session:
        listed = (await session.list_resources()).resources
        texts = [(await session.read_resource(resource.uri)).contents[0] for resource in listed]
        with pytest.raises(MCPError, match=r"There is no resource 'gateway://none' for you"):
            await session.read_resource("gateway://none")

    assert all(isinstance(text, TextResourceContents) for text in texts)
    found = [text.text.strip() for text in texts if isinstance(text, TextResourceContents)]
    assert found == [(ROOT / "schema" / "api.graphql").read_text().strip(), page().strip()]


async def test_a_result_beyond_the_limit_of_the_tool_says_to_ask_for_less(served: Served, tools_manifest: Path) -> None:
    mark = {"description": "Areas.", "resultBytes": 1024}
    operations = [
        {"id": "long", "body": LONG, "tool": {**mark, "name": "long"}},
        {"id": "report", "body": REPORT_LONG, "tool": mark},
    ]
    load_manifest(served, tools_manifest, with_tools(*operations))
    async with connected(served, served.headers("ada", Role.USER)) as session:
        too_long = error_of(await session.call_tool("long", {}))
        written = error_of(await session.call_tool("Long", {"text": "x" * 200}))

    size = too_long["extensions"]["found"]
    assert too_long["extensions"] == {
        **{"code": "BAD_USER_INPUT", "measure": "resultBytes", "limit": 1024, "found": size},
    }
    assert too_long["message"] == str(ResultTooLarge(size, 1024, wrote=False))
    assert "ask for fewer entries" in too_long["message"]
    assert written["message"].endswith("The mutation was executed: do not repeat it.")
    listed: Answer = await served.ask('{ sightings(area: "Harbor") { nodes { description } } }')
    assert [node["description"] for node in listed.data["sightings"]["nodes"]] == ["x" * 200]


async def test_tools_follow_the_manifest_and_without_any_there_is_no_endpoint(
    served: Served, tools_manifest: Path
) -> None:
    load_manifest(served, tools_manifest, '{"areas": "{ areas }"}')
    status, answer, _ = await send_message(served, "tools/list")
    assert status == 404
    assert answer["errors"][0]["extensions"] == {"code": "NOT_FOUND"}

    areas = {"id": "a", "body": "{ areas }", "tool": {"name": "areas", "description": "The areas."}}
    other = {"id": "b", "body": "{ categories }", "tool": {"name": "categories", "description": "The categories."}}
    load_manifest(served, tools_manifest, with_tools(areas))
    async with connected(served) as session:
        assert [tool.name for tool in (await session.list_tools()).tools] == ["areas"]
        load_manifest(served, tools_manifest, with_tools(areas, other))
        assert len((await session.list_tools()).tools) == 2


class TestEnforced:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return replace(settings, documents=replace(settings.documents, mode=DocumentsMode.ENFORCE))

    async def test_tools_run_and_resources_are_for_admins(self, served: Served) -> None:
        async with connected(served, served.headers("ada", Role.USER)) as session:
            result = await session.call_tool("trending_categories", {})
            for_users = (await session.list_resources()).resources
            with pytest.raises(MCPError, match="There is no resource"):
                await session.read_resource("gateway://schema.graphql")
        async with connected(served, served.headers("root", Role.ADMIN)) as session:
            for_admins = (await session.list_resources()).resources

        assert not result.is_error
        assert for_users == []
        assert len(for_admins) == 2
        assert (await served.ask("{ areas }")).codes == ["FORBIDDEN"]


class TestWithoutTools:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return replace(settings, documents=replace(settings.documents, mode=DocumentsMode.OFF, source=None))

    async def test_without_a_manifest_there_is_no_endpoint(self, served: Served) -> None:
        answers = [await send_message(served, "initialize")]
        async with served.http.get(f"{served.url}/mcp") as response:
            answers.append((response.status, await response.json(), response.headers))
        assert [(status, answer["errors"][0]["extensions"]["code"]) for status, answer, _ in answers] == [
            (404, "NOT_FOUND")
        ] * 2
