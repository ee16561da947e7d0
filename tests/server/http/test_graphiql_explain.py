"""GraphiQL's Explain pane, in Chromium."""

import json
import re
from contextlib import suppress

from tests.support.command_line import GatewayProcess
from tests.support.graphiql import context, execute, gateway, open_page, page, page_that_errs, set_query

with suppress(ImportError):  # the browser tests are skipped, or fail where a browser is required
    from playwright.sync_api import Page, expect

__all__ = ["context", "gateway", "page", "page_that_errs"]


# Explain


def test_the_pane_explains_runs(page: "Page") -> None:
    page.click("button[aria-label='Show Explain']")
    pane = page.locator(".explain")
    pane.get_by_role("switch", name="Explain each run").check()
    set_query(
        page, '{ one: user(id: "mira") { name } other: user(id: "teo") { name } again: user(id: "mira") { bio } }'
    )

    result = execute(page, '"other"')

    assert "extensions" not in json.loads(result)
    expect(pane.locator(".totals div")).to_have_text(
        [re.compile(r"Requests1"), "Read units1", "Write units0", re.compile("Time")]
    )
    rows = [row.split() for row in pane.locator("tbody tr").all_inner_texts()]
    assert [[row[0], *row[-3:]] for row in rows] == [
        ["again", "0", "1", "0"],
        ["one", "1", "–", "0.5"],
        ["other", "1", "–", "0.5"],
    ]
    call = pane.locator(".calls summary")
    expect(call).to_contain_text("BatchGetItem feed")
    expect(call).to_contain_text("2 items · 1 unit")
    call.focus()
    page.keyboard.press("Enter")
    expect(pane.locator(".calls dd").first).to_have_text(re.compile("USER#mira.*META.*USER#teo.*META"))
    pane.get_by_role("button", name="other").press("Enter")
    expect(pane.locator(".calls h3")).to_contain_text("1 call of other")

    pane.get_by_role("switch", name="Explain each run").uncheck()
    set_query(page, "{ liveMatches { matchId } }")
    execute(page, '"liveMatches"')
    expect(pane.locator(".run")).to_contain_text("later runs are not explained")


def test_the_pane_explains_each_event_of_a_subscription(page: "Page") -> None:
    page.click("button[aria-label='Show Explain']")
    pane = page.locator(".explain")
    pane.get_by_role("switch", name="Explain each run").check()
    button, hint = page.locator("button.graphiql-execute-button"), pane.locator(".hint")
    set_query(page, 'subscription Quiet { watchAlerts(userId: "demo") { area } }')
    button.click()
    expect(pane.locator(".run code")).to_have_text("Quiet")
    expect(hint).to_have_text("Waiting for the first event.")
    button.click()
    expect(hint).to_have_text("The subscription was stopped before its first event.")
    set_query(page, 'subscription Lost { matchUpdates(matchId: "nope") { version } }')
    execute(page, "There is no match")
    expect(hint).to_have_text("The response has no explanation. The result shows the reason.")
    set_query(page, 'subscription Likes { postEngagement(postId: "mira-1") { likeCount } }')

    result = execute(page, "likeCount")

    assert json.loads(result)["extensions"].keys() == {"eventId"}
    expect(pane.locator(".run code")).to_have_text("Likes")
    expect(pane.locator("tbody th")).to_have_text(["postEngagement FEED-S1"])
    expect(pane.locator(".calls summary")).to_contain_text("GetItem feed")


def test_a_caller_without_permission_for_explanations_is_told_so(
    page_that_errs: "Page", gateway: GatewayProcess
) -> None:
    page = page_that_errs  # a response of 401 is not an error of the page
    open_page(page, gateway)
    page.click("button[aria-label='Show Explain']")
    page.locator(".explain").get_by_role("switch", name="Explain each run").check()
    page.select_option(".role-switch select", label="anonymous")
    set_query(page, "{ liveMatches { matchId } }")

    execute(page, "UNAUTHENTICATED")

    received = page.locator(".explain").get_by_role("alert")
    expect(received).to_contain_text("This caller is not allowed to explain operations.")
    expect(received).to_contain_text("Nothing was executed.")
