"""The accessibility of GraphiQL, judged by axe-core, in Chromium."""

from contextlib import suppress
from typing import Any

import pytest

from tests.support.command_line import GatewayProcess
from tests.support.graphiql import context, execute, gateway, open_page, page, page_that_errs, set_query
from tests.support.store_engines import ROOT

with suppress(ImportError):  # the browser tests are skipped, or fail where a browser is required
    from playwright.sync_api import Page

__all__ = ["context", "gateway", "page", "page_that_errs"]

AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"
PANES = ("Examples", "Explain", "Photos", "History", "Documentation Explorer")
# What GraphiQL itself shows: tabs that contain their close buttons, and the colours of its editors, documentation and
# history.
OF_GRAPHIQL = ".graphiql-tabs, .monaco-editor, .graphiql-doc-explorer, .graphiql-history"
VIOLATIONS = """(graphiql) => axe
  .run({ exclude: graphiql.split(', ').map((part) => [part]) }, { resultTypes: ['violations'] })
  .then(({ violations }) => violations.flatMap(({ id, nodes }) => nodes.map(({ html }) => [id, html])))"""


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 768, 360])
def test_axe_reports_nothing(page: "Page", gateway: GatewayProcess, width: int, theme: Any) -> None:
    if not AXE.exists():
        pytest.skip("axe-core is not installed: run `make setup`.")
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme=theme, reduced_motion="reduce")
    open_page(page, gateway)
    page.evaluate(AXE.read_text())
    assert page.evaluate(VIOLATIONS, OF_GRAPHIQL) == []
    for pane in PANES:
        if page.locator(f"button[aria-label='Show {pane}']").count():
            page.click(f"button[aria-label='Show {pane}']")
        page.wait_for_selector(f"button[aria-label='Hide {pane}']")
        assert (pane, page.evaluate(VIOLATIONS, OF_GRAPHIQL)) == (pane, [])
    page.click("button[aria-label='Hide Documentation Explorer']")
    set_query(page, "{ photos(first: 2) { nodes { description thumbnailUrl } } }")
    execute(page, "thumbnailUrl")
    assert page.evaluate(VIOLATIONS, OF_GRAPHIQL) == []
