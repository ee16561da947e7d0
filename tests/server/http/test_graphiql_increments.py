"""GraphiQL with `@defer`, in Chromium."""

import json
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.support.command_line import GatewayProcess, serve_process
from tests.support.graphiql import context, execute, page, page_that_errs, set_query

with suppress(ImportError):  # the browser tests are skipped, or fail where a browser is required
    from playwright.sync_api import Page, expect

__all__ = ["context", "page", "page_that_errs"]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("incremental") / "data"
    with serve_process(folder, "--memory", GATEWAY_INCREMENTAL="on") as gateway:
        yield gateway


def test_the_result_has_all_parts_and_the_pane_explains_them(page: "Page") -> None:
    page.click("button[aria-label='Show Explain']")
    pane = page.locator(".explain")
    pane.get_by_role("switch", name="Explain each run").check()
    set_query(page, '{ one: user(id: "mira") { id ... @defer { name } } other: user(id: "teo") { id } }')

    result = json.loads(execute(page, '"name"'))

    assert result["data"]["one"].keys() == {"id", "name"}
    assert "dynamodb" not in result.get("extensions", {})
    expect(pane.locator(".calls summary").first).to_contain_text("feed")

    set_query(page, '{ user(id: "mira") { ... @defer { nope } } }')
    execute(page, "Cannot query field")
