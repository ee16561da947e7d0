"""The tools that `make serve` offers, called on the data of the demo."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from tests.support.command_line import GatewayProcess, serve_process
from tests.support.mcp_client import mcp_client_at
from tests.support.until import until_async

pytestmark = pytest.mark.proof


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[GatewayProcess]:
    with serve_process(tmp_path / "data") as gateway:
        yield gateway


async def data_of_tool(client: Client, name: str, **arguments: Any) -> Any:
    """Return the data of a call, which the client has compared with the schema of the result."""
    result = await client.call_tool(name, arguments)
    assert not result.is_error, result
    assert result.structured_content is not None
    (data,) = result.structured_content.values()
    return data


async def has_groups(client: Client) -> bool:
    return bool((await data_of_tool(client, "earthquake_statistics", by="REGION"))["groups"])


async def test_every_tool_of_the_demo_returns_data_of_its_schema(demo: GatewayProcess) -> None:
    async with mcp_client_at(demo.url, {"Authorization": f"Bearer {demo.token('Demo user')}"}) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        earthquakes = await data_of_tool(client, "recent_earthquakes", first=3)
        # Pipelines count the earthquakes and start the matches in the background.
        await until_async(lambda: has_groups(client))
        await until_async(lambda: data_of_tool(client, "live_matches"))
        report = await data_of_tool(client, "report_sighting", area="Harbor", category="Cats", description="A tabby")
        sightings = await data_of_tool(client, "active_sightings", area="Harbor")
        trending = await data_of_tool(client, "trending_categories")
        posts = await data_of_tool(client, "search_posts", query="the")
        like = await data_of_tool(client, "like_post", postId=posts["nodes"][0]["postId"])
        matches = await data_of_tool(client, "live_matches")
        match = await data_of_tool(client, "match_scorecards", matchId=matches[0]["matchId"])
        photos = await data_of_tool(client, "latest_photos")

    assert len(names) == 10
    assert len(earthquakes["nodes"]) == 3
    assert report["sightingId"] in {node["sightingId"] for node in sightings["nodes"]}
    assert len(trending) == 5
    assert like["post"]["likedByViewer"]
    assert match["homeTeam"]["name"] == matches[0]["match"]["homeTeam"]["name"]
    assert photos["nodes"]
