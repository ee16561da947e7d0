"""Lists of photos: paging in both directions, and cursors that are valid for one list only."""

import pytest

from datastore.model.identity import Role
from resolvers.shared.global_ids import global_id
from tests.support.answers import data_of
from tests.support.feed_steps import assert_paged
from tests.support.photo_items import (
    ADA,
    EVE,
    WRITTEN,
    person,
    photo,
    photo_user,
    put_library_items,
    user_id,
)
from tests.support.served import Answer, Served

# Pages.


async def test_lists_are_paged_both_ways_in_both_orders(served: Served) -> None:
    mine = [f"i{number:02}" for number in range(0, 10, 2)]
    others = [f"i{number:02}" for number in (1, 7)]
    people = [f"p{number}" for number in range(4)]
    await put_library_items(
        served,
        photo_user(),
        *[photo(id) for id in mine],
        *[photo(id, EVE) for id in others],
        *[person(id) for id in people],
    )
    id = user_id(served, ADA)

    both = sorted(mine + others)
    await assert_paged(served, "photos(%s)", "imageId", both[::-1])
    await assert_paged(served, "photos(order: ASCENDING, %s)", "imageId", both)
    await assert_paged(served, f'photosByUser(userId: "{id}", %s)', "imageId", mine[::-1])
    await assert_paged(served, f'photosByUser(email: "{ADA}", order: ASCENDING, %s)', "imageId", mine)
    await assert_paged(served, "persons(%s)", "personId", people)
    await assert_paged(served, "persons(order: DESCENDING, %s)", "personId", people[::-1])


async def test_the_records_of_the_owners_of_several_lists_are_read_in_one_batch(served: Served) -> None:
    await put_library_items(served, photo_user(), photo_user(EVE), photo("i1"), photo("i2", EVE))

    answer = await served.ask(
        """query ($ada: String, $eve: String) {
          ada: photosByUser(email: $ada) { nodes { user { userId } } }
          eve: photosByUser(email: $eve) { edges { node { ...Owner } } }
          all: photos { nodes { user { userId } } }
        } fragment Owner on Photo { user { userId } }""",
        {"ada": ADA, "eve": EVE},
        user="ada",
    )

    assert answer.errors is None
    assert [call for call in answer.made if not call.startswith("Query")] == ["BatchGetItem sparks"]


async def test_the_last_evaluated_key_continues_after_the_page_and_is_null_at_the_end(served: Served) -> None:
    await put_library_items(served, photo_user(), *[photo(f"i{number}") for number in range(3)])
    ask = """query ($after: String) { photosByUser(email: "ada@example.com", first: 2, after: $after) {
      nodes { imageId } lastEvaluatedKey pageInfo { endCursor } } }"""

    first = data_of(await served.ask(ask))["photosByUser"]
    second = data_of(await served.ask(ask, {"after": first["lastEvaluatedKey"]}))["photosByUser"]

    assert first["nodes"] == [{"imageId": "i2"}, {"imageId": "i1"}]
    assert first["lastEvaluatedKey"] == first["pageInfo"]["endCursor"]
    assert second["nodes"] == [{"imageId": "i0"}]
    assert second["lastEvaluatedKey"] is None


async def test_a_cursor_is_valid_for_its_own_list_only(served: Served) -> None:
    await put_library_items(
        served, photo_user(), photo_user(EVE), person("p1"), person("p2"), photo("a"), photo("b"), photo("c", EVE)
    )
    lists = {
        "photos": "photos(%s)",
        "ascending": "photos(order: ASCENDING, %s)",
        "ada's": f'photosByUser(email: "{ADA}", %s)',
        "ada's, ascending": f'photosByUser(email: "{ADA}", order: ASCENDING, %s)',
        "eve's": f'photosByUser(userId: "{user_id(served, EVE)}", %s)',
        "persons": "persons(%s)",
        "users": "photoUsers(%s)",
    }

    async def page(field: str, paging: str) -> Answer:
        body = "{ nodes { id } pageInfo { endCursor } }"
        return await served.ask(f"{{ page: {field % paging} {body} }}", user="root", role=Role.ADMIN)

    cursors = {
        name: data_of(await page(field, "first: 1"))["page"]["pageInfo"]["endCursor"] for name, field in lists.items()
    }

    for name, cursor in cursors.items():
        for other, field in lists.items():
            for way in ("after", "before"):
                assert (await page(field, f'{way}: "{cursor}"')).codes == ([] if name == other else ["BAD_CURSOR"])
    for name, cursor in cursors.items():
        for at in (0, len(cursor) // 2, -2):
            flipped = list(cursor)
            flipped[at] = "A" if flipped[at] != "A" else "B"
            assert (await page(lists[name], f'after: "{"".join(flipped)}"')).codes == ["BAD_CURSOR"]
    # A user named by id or by email has the same list.
    mine = cursors["ada's"]
    answer = await page(f'photosByUser(userId: "{user_id(served, ADA)}", %s)', f'after: "{mine}"')
    assert [node["id"] for node in data_of(answer)["page"]["nodes"]] == [photo_id("a")]


def photo_id(image_id: str) -> str:
    return global_id("Photo", image_id, WRITTEN)


async def test_an_invalid_user_id_finds_no_user_and_no_photos(served: Served) -> None:
    await put_library_items(served, photo_user(), photo("a"))

    one = await served.ask('{ photoUser(id: "forged") { id } }')
    listed = await served.ask('{ photosByUser(userId: "forged") { nodes { id } } }')

    assert (data_of(one), one.calls) == ({"photoUser": None}, [])
    assert (data_of(listed), listed.calls) == ({"photosByUser": {"nodes": []}}, [])


@pytest.mark.parametrize("field", ["photosByUser(%s) { nodes { id } }", "photoUser(%s) { id }"])
@pytest.mark.parametrize(
    ("named", "fault"),
    [
        ("", "email"),
        ('email: "ada@example.com", userId: "x"', "userId"),
        ('email: "ada"', "email"),
        (f'email: "{"a" * 250}@x.org"', "email"),
    ],
)
async def test_a_user_is_named_by_either_id_or_email(served: Served, field: str, named: str, fault: str) -> None:
    answer = await served.ask(f"{{ {field % named if named else field.replace('(%s)', '')} }}")

    assert [error["extensions"]["code"] for error in answer.errors or ()] == ["BAD_USER_INPUT"]
    assert answer.calls == []
