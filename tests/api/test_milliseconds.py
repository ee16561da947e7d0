"""Times in requests and responses are exact to the millisecond: keys, ranges and versions of the same second differ."""

from datetime import timedelta

import pytest

from datastore.model.timestamps import iso
from tests.support.fixture_steps import planned_match, put_fixtures
from tests.support.photo_items import photo, photo_user, put_library_items
from tests.support.served import NOON, Served

TAKEN = "2023-01-01T00:00:00.%sZ"
PHOTO = 'query ($at: DateTime) { photo(id: "b", takenAt: $at) { imageId takenAt } }'


async def test_photos_of_the_same_second_have_the_millisecond_at_which_they_were_taken(served: Served) -> None:
    times = {"a": TAKEN % "001", "b": TAKEN % "123", "c": TAKEN % "999"}
    await put_library_items(served, photo_user(), *[photo(id, at=at) for id, at in times.items()])

    answer = await served.ask("{ photos(order: ASCENDING) { nodes { imageId takenAt } } }")

    assert answer.data["photos"]["nodes"] == [{"imageId": id, "takenAt": at} for id, at in times.items()]


@pytest.mark.parametrize(
    ("at", "is_found"),
    [
        (TAKEN % "123", True),
        ("2023-01-01T01:00:00.123+01:00", True),
        (TAKEN % "123999", True),  # a smaller fraction is cut off
        (TAKEN % "122", False),
        (TAKEN % "124", False),
        ("2023-01-01T00:00:00Z", False),
    ],
)
async def test_a_photo_is_found_by_its_millisecond_only(served: Served, at: str, is_found: bool) -> None:
    await put_library_items(served, photo_user(), photo("b", at=TAKEN % "123"))

    answer = await served.ask(PHOTO, {"at": at})

    assert answer.errors is None
    assert answer.data["photo"] == ({"imageId": "b", "takenAt": TAKEN % "123"} if is_found else None)
    assert answer.made == (["GetItem sparks"] if is_found else ["GetItem sparks", "Query sparks"])


async def test_a_range_of_start_times_includes_both_of_its_milliseconds(served: Served) -> None:
    await put_fixtures(served, *[planned_match(f"m{ms}", NOON + timedelta(milliseconds=ms)) for ms in range(5)])
    first, last = (iso(NOON + timedelta(milliseconds=ms)) for ms in (1, 3))

    answer = await served.ask(
        f'{{ matchesByLeague(leagueCode: "IPL", from: "{first}", to: "{last}") {{ nodes {{ matchId startTime }} }} }}'
    )

    assert answer.data["matchesByLeague"]["nodes"] == [
        {"matchId": f"m{ms}", "startTime": f"2026-06-25T12:00:00.00{ms}Z"} for ms in (1, 2, 3)
    ]
    assert answer.made == ["Query cricket-fixtures.leagueCode-startTime-index"]
