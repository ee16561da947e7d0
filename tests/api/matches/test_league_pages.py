"""The matches of a league in pages, through the API on the real engine (FIX-3)."""

import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from datastore.matches.cricket import (
    Match,
)
from datastore.matches.leagues import League, Leagues
from tests.support.fixture_steps import BY_LEAGUE, ask_system, code_and_field, league_pages, planned_match, put_fixtures
from tests.support.served import NOON, Served

# FIX-3: the matches of a league


def within(matches: Sequence[Match], code: str, start: datetime, end: datetime) -> list[str]:
    """Return the expected list of matches."""
    found = [match for match in matches if match.league_code == code and start <= match.start_time <= end]
    return [match.match_id for match in sorted(found, key=lambda match: (match.start_time, match.match_id))]


@pytest.fixture
async def sixty(served: Served) -> list[Match]:
    """Sixty matches in three leagues over forty days, some of them at the same time."""
    rng = random.Random(60)
    matches = [
        planned_match(
            f"m{number:02}",
            NOON + timedelta(days=rng.randint(-20, 20), hours=rng.choice((0, 4))),
            league_code=rng.choice(("IPL", "BBL", "PSL")),
        )
        for number in range(60)
    ]
    await put_fixtures(served, *matches)
    for code in ("IPL", "BBL", "PSL"):
        await Leagues(served.store(), NOON).put(League(code, code, code))
    return matches


async def test_pages_of_a_league_in_both_directions_are_the_list(served: Served, sixty: list[Match]) -> None:
    rng = random.Random(3)
    for _ in range(12):
        code, size = rng.choice(("IPL", "BBL", "PSL")), rng.randint(1, 12)
        start = NOON + timedelta(days=rng.randint(-22, 10))
        end = start + timedelta(days=rng.randint(0, 30))
        arguments = {"code": code, "from": start.isoformat(), "to": end.isoformat()}
        # The index orders matches of the same time by its own key, in both directions alike.
        whole = [id for page in await league_pages(served, 100, arguments) for id in page]

        forward = await league_pages(served, size, arguments)
        back = await league_pages(served, size, arguments, backward=True)

        starts = {match.match_id: match.start_time for match in sixty}
        assert sorted(whole) == sorted(within(sixty, code, start, end))
        assert [starts[id] for id in whole] == sorted(starts[id] for id in whole)
        assert [id for page in forward for id in page] == whole
        assert [id for page in reversed(back) for id in page] == whole
        assert [len(page) for page in forward[:-1]] == [size] * (len(forward) - 1)
        assert [len(page) for page in back[:-1]] == [size] * (len(back) - 1)


async def test_a_league_that_does_not_exist_is_an_error_and_one_without_matches_an_empty_list(
    served: Served, sixty: list[Match]
) -> None:
    later = {"from": "2027-01-01", "to": "2027-02-01"}
    known, unknown = [await served.ask(BY_LEAGUE, {"code": code, **later}) for code in ("PSL", "NOPE")]

    assert (known.errors, known.data["matchesByLeague"]["edges"]) == (None, [])
    assert unknown.codes == ["NOT_FOUND"]
    assert unknown.errors is not None
    assert unknown.errors[0]["message"] == "There is no league with the code 'NOPE'."
    # The leagues were read once, and are cached for 30 seconds.
    assert unknown.made == ["Query cricket-fixtures.leagueCode-startTime-index"]


async def test_a_league_has_its_matches_with_the_same_window(served: Served, sixty: list[Match]) -> None:
    text = """query ($after: String, $to: DateTime) {
      league(id: "IPL") { matches(first: 2, after: $after, to: $to) { nodes { matchId } pageInfo { endCursor } } }
      matchesByLeague(leagueCode: "IPL", first: 4, to: $to) { nodes { matchId } pageInfo { endCursor } }
      bbl: league(id: "BBL") { matches(to: "2020-01-01T00:00:00Z") { nodes { matchId } } }
    }"""
    first = (await served.ask(text)).data
    second = (await served.ask(text, {"after": first["league"]["matches"]["pageInfo"]["endCursor"]})).data

    pages = [page["league"]["matches"]["nodes"] for page in (first, second)]
    assert [*pages[0], *pages[1]] == first["matchesByLeague"]["nodes"]
    assert first["bbl"] == {"matches": {"nodes": []}}
    # A cursor belongs to its field and its league.
    foreign = await served.ask(text, {"after": first["matchesByLeague"]["pageInfo"]["endCursor"]})
    other = await served.ask(
        'query ($after: String) { league(id: "BBL") { matches(first: 2, after: $after) { nodes { matchId } } } }',
        {"after": first["league"]["matches"]["pageInfo"]["endCursor"]},
    )
    assert (foreign.codes, other.codes) == (["BAD_CURSOR"], ["BAD_CURSOR"])


async def test_a_window_includes_both_ends(served: Served) -> None:
    instant = timedelta(milliseconds=1)
    await put_fixtures(
        served,
        planned_match("before", NOON - instant),
        planned_match("first", NOON),
        planned_match("last", NOON + timedelta(hours=1)),
        planned_match("after", NOON + timedelta(hours=1) + instant),
    )

    # The same moments, in another zone.
    found = await league_pages(
        served, 10, {"code": "IPL", "from": "2026-06-25T17:30:00+05:30", "to": "2026-06-25T13:00:00Z"}
    )

    assert found == [["first", "last"]]


DEFAULT_WINDOWS: list[tuple[dict[str, str], list[int]]] = [
    ({}, [-7, 0, 30]),
    ({"from": "2026-06-25T12:00:00Z"}, [0, 30]),
    ({"to": "2026-06-25T12:00:00Z"}, [-7, 0]),
    # With a start in the future, the window is the next thirty days; with an end in the past, the week before it.
    ({"from": "2026-07-20T12:00:00Z"}, [30, 31, 50]),
    ({"to": "2026-06-17T12:00:00Z"}, [-12, -8]),
]


async def test_a_window_without_ends_is_from_a_week_ago_for_a_month(served: Served) -> None:
    await put_fixtures(
        served, *[planned_match(f"{day}", NOON + timedelta(days=day)) for day in (-16, -12, -8, -7, 0, 30, 31, 50, 56)]
    )

    found = [await league_pages(served, 10, {"code": "IPL", **arguments}) for arguments, _ in DEFAULT_WINDOWS]

    assert found == [[[str(day) for day in days]] for _, days in DEFAULT_WINDOWS]


WRONG_WINDOWS = [
    ("2026-06-25T12:00:00Z", "2026-06-25T11:59:59Z", "to"),
    ("2016-06-25T12:00:00Z", "2026-07-25T12:00:00Z", "to"),
    ("2010-01-01T00:00:00Z", None, "to"),
    ("2026-06-25T12:00:00Z", "9999-12-31T23:59:59Z", "to"),
    ("9999-12-31T23:59:59Z", None, "from"),
    (None, "0001-01-01T00:00:00Z", "to"),
    ("0001-01-01T00:00:00+14:00", None, "from"),
]


async def test_an_invalid_or_too_long_window_is_refused(served: Served) -> None:
    answers = [
        await served.ask(BY_LEAGUE, {"code": "IPL", "from": start, "to": end}) for start, end, _ in WRONG_WINDOWS
    ]

    assert [code_and_field(answer) for answer in answers] == [("BAD_USER_INPUT", field) for *_, field in WRONG_WINDOWS]
    assert [answer.calls for answer in answers] == [[]] * len(answers)


async def test_an_impossible_league_code_is_refused(served: Served) -> None:
    answers = [await served.ask(BY_LEAGUE, {"code": code}) for code in ("", " ", "x" * 21)]

    assert [code_and_field(answer) for answer in answers] == [("BAD_USER_INPUT", "leagueCode")] * 3
    assert [answer.calls for answer in answers] == [[]] * 3


async def test_a_cursor_is_valid_for_its_list_only(served: Served, sixty: list[Match]) -> None:
    window = {"from": "2026-06-01T00:00:00Z", "to": "2026-07-31T00:00:00Z"}
    page = (await served.ask(BY_LEAGUE, {"code": "IPL", "first": 2, **window})).data["matchesByLeague"]
    cursor = page["pageInfo"]["endCursor"]

    others: list[dict[str, Any]] = [
        {"code": "BBL", **window},
        {"code": "IPL", "from": window["from"]},
        {"code": "IPL", **window, "from": "2026-06-02T00:00:00Z"},
        {"code": "IPL"},
    ]

    assert page["lastEvaluatedKey"] == cursor
    assert [(await served.ask(BY_LEAGUE, {"after": cursor, **other})).codes for other in others] == [
        ["BAD_CURSOR"]
    ] * len(others)
    assert (await served.ask(BY_LEAGUE, {"code": "IPL", "after": cursor[:-2] + "AA", **window})).codes == ["BAD_CURSOR"]
    followers = 'query ($after: String) { match(id: "m01") { follows(after: $after) { nodes { userId } } } }'
    assert (await ask_system(served, followers, {"after": cursor})).codes == ["BAD_CURSOR"]


async def test_a_cursor_stays_valid_while_the_default_window_moves(served: Served, sixty: list[Match]) -> None:
    first = (await served.ask(BY_LEAGUE, {"code": "IPL", "first": 3})).data["matchesByLeague"]
    served.clock.forward(minutes=5)

    second = await served.ask(BY_LEAGUE, {"code": "IPL", "first": 3, "after": first["pageInfo"]["endCursor"]})

    at_once = await league_pages(served, 6, {"code": "IPL"})
    assert [
        edge["node"]["matchId"] for page in (first, second.data["matchesByLeague"]) for edge in page["edges"]
    ] == at_once[0]
