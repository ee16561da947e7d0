"""Every argument and input field that names an object of cricket accepts its global id, and no other type's."""

import re
from collections.abc import Iterator

import pytest

from resolvers.shared.global_ids import global_id
from tests.support.contract import send
from tests.support.contract.matches import PAGE
from tests.support.contract.pages import Field
from tests.support.served import Served

# The types that the argument `id` names, by field.
OWN = {"League": "league", "Team": "team"}
KINDS = {
    "matchId": "Match",
    "teamId": "Team",
    "homeTeamId": "Team",
    "awayTeamId": "Team",
    "leagueId": "League",
    "seasonId": "Season",
    "currentSeasonId": "Season",
    "userId": "User",
}
_ID = re.compile(r'\b(id|ids|\w+Id): (\[?)"([^"]+)"')


def type_of_argument(row: Field, name: str) -> str:
    return KINDS.get(name) or next((kind for kind, word in OWN.items() if word in row.name.lower()), "Match")


def key_of_session(name: str, value: str) -> tuple[str, tuple[str, ...]] | None:
    return ("LiveActivity", ("m1", "ada", value)) if name == "deviceId" else None


def cases() -> Iterator[tuple[Field, re.Match[str]]]:
    for row in PAGE.fields:
        for found in _ID.finditer(row.operation):
            yield row, found


CASES = [pytest.param(row, found, id=f"{row.name}-{found[1]}-{found[3]}") for row, found in cases()]


def with_id(row: Field, found: re.Match[str], id: str) -> Field:
    text = row.operation
    return Field(
        row.name, row.use, text[: found.start(3)] + id + text[found.end(3) :], row.calls, row.also, user=row.user
    )


@pytest.mark.parametrize(("row", "found"), CASES)
async def test_an_argument_accepts_the_global_id_of_its_type(served: Served, row: Field, found: re.Match[str]) -> None:
    prepared = await PAGE.prepare(served)
    kind, parts = key_of_session(found[1], found[3]) or (type_of_argument(row, found[1]), (found[3],))
    expected = global_id(kind, *parts)

    answer = await send(served, with_id(row, found, expected), prepared)

    assert answer.errors is None
    assert answer.made == row.calls


@pytest.mark.parametrize(("row", "found"), CASES)
async def test_an_argument_refuses_the_global_id_of_another_type(
    served: Served, row: Field, found: re.Match[str]
) -> None:
    prepared = await PAGE.prepare(served)

    answer = await send(served, with_id(row, found, global_id("Post", found[3])), prepared)

    assert answer.codes == ["BAD_USER_INPUT"]
    assert answer.errors is not None
    assert found[1] in answer.errors[0]["extensions"]["field"]
