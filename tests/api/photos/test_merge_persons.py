"""Merging two persons (SPARKS-W1): faces, photos and counts are moved in several transactions, until none is left."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from datastore.database import StoreOptions
from datastore.dynamodb.retry.backoff import Backoff
from datastore.model.identity import Role
from datastore.photos import merge_persons as merging
from tests.support.fault_proxy import Proxy, Seen, forward
from tests.support.photo_items import ask_as, face, person, photo, photo_user, put_library_items, tagged
from tests.support.photo_steps import (
    MERGE,
    RENAME,
    UNTAG,
    ask_library,
    assert_consistent,
    library_item,
    library_items,
    tag_person,
)
from tests.support.served import Served


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Query a lagging index again without waiting."""
    monkeypatch.setattr(merging, "INDEX_LAG_RETRIES", Backoff(initial=0.0, maximum=0.0, attempts=3))


async def merge(served: Served, source: str, into: str) -> Any:
    return await ask_as(served, MERGE, role=Role.ADMIN, one=source, into=into)


async def test_a_merge_moves_the_faces_to_the_other_person(served: Served) -> None:
    await put_library_items(
        served, photo_user(uploadCount=2), photo("i"), photo("j"), person("p"), person("q"), person("r")
    )
    for image_id, whose in (("i", "r"), ("i", "p"), ("i", "q"), ("j", "p"), ("j", "p")):
        await tag_person(served, image_id, whose)

    answer = await merge(served, "p", "q")

    assert answer.data["mergePersons"] == {"personId": "q", "name": "Q", "faceCount": 4}
    assert await library_item(served, "PERSON#p") is None
    assert await library_item(served, "PERSON#q") == person("q", faceCount=4)
    shown = [await library_item(served, f"IMAGE#{image_id}") or {} for image_id in ("i", "j")]
    assert [item["persons"] for item in shown] == [["r", "q"], ["q"]]
    assert [item["personNames"] for item in shown] == [{"r": "R", "q": "Q"}, {"q": "Q"}]
    assert [[on_it["personId"] for on_it in item["faces"]] for item in shown] == [["r", "q", "q"], ["q", "q"]]
    await assert_consistent(served)


async def test_a_merge_of_few_faces_makes_few_calls(served: Served) -> None:
    await put_library_items(served, photo("i"), person("p"), person("q"))
    await tag_person(served, "i", "p")
    await tag_person(served, "i", "p")

    answer = await merge(served, "p", "q")

    assert answer.made == [
        "BatchGetItem sparks",  # the faces
        "GetItem sparks",  # their photo
        *["Query sparks"] * 9,  # both persons, four times, and finally the remaining one
        *["Query sparks.personId-PK-index"] * 2,  # the faces, and a check for more
        *["TransactWriteItems sparks"] * 3,  # start, move, end
    ]


async def test_many_faces_are_moved_in_several_transactions(served: Served) -> None:
    people = person("p", faceCount=45), person("q")
    faces = [face(f"f{number:02}", f"i{number % 3}", "p") for number in range(45)]
    photos = [tagged(photo(f"i{number}"), faces[number::3], people[0]) for number in range(3)]
    await put_library_items(served, *people, *photos, *faces)

    answer = await merge(served, "p", "q")

    assert answer.data["mergePersons"]["faceCount"] == 45
    assert answer.made.count("TransactWriteItems sparks") == 5
    await assert_consistent(served)


async def test_an_interrupted_merge_continues_and_a_completed_one_changes_nothing(served: Served) -> None:
    people = person("p", faceCount=1, mergedInto="q"), person("q", faceCount=1, receives={"p"})
    moved, left = face("f1", "i", "q"), face("f2", "i", "p")
    await put_library_items(served, *people, tagged(photo("i"), [moved, left], people[1], people[0]), moved, left)

    first = await merge(served, "p", "q")
    before = await library_items(served)
    second = await merge(served, "p", "q")

    assert first.data == second.data == {"mergePersons": {"personId": "q", "name": "Q", "faceCount": 2}}
    assert await library_items(served) == before
    assert await library_item(served, "PERSON#q") == person("q", faceCount=2)
    await assert_consistent(served)


async def test_faces_without_a_photo_and_photos_that_list_no_faces_are_merged_too(served: Served) -> None:
    old = photo("i", persons=["p", "q"])
    faces = [face("f1", "i", "p", None), face("f2", "i", "q", None), face("f3", "gone", "p")]
    del faces[2]["boundingBox"]  # nor need it be complete
    await put_library_items(served, old, person("p", faceCount=2), person("q", faceCount=1), *faces)

    answer = await merge(served, "p", "q")

    assert answer.data["mergePersons"]["faceCount"] == 3
    assert {item["personId"] for item in await library_items(served, "FACE")} == {"q"}
    assert await library_item(served, "IMAGE#i") == {
        **old,
        "persons": ["q"],
        "personNames": {"q": "Q"},
        "faces": [{"faceId": "f1", "personId": "q"}, {"faceId": "f2", "personId": "q"}],
        "revision": 1,
    }


async def test_a_merge_with_a_count_that_is_too_low_finishes(served: Served) -> None:
    await put_library_items(served, person("p"), person("q"), face("f", "i", "p"))

    assert (await merge(served, "p", "q")).errors is None
    assert await library_items(served, "PERSON") == [person("q", faceCount=1)]


async def test_the_count_of_an_uncounted_person_does_not_begin_during_a_merge(served: Served) -> None:
    """Neither the merge nor a concurrent untag starts a count: it would miss faces that the index does not show yet."""
    uncounted, null_count = person("p1"), person("p2", faceCount=None)
    del uncounted["faceCount"]
    faces = [face(f"f{number}", "i", whose) for number, whose in enumerate(("p1", "p1", "p2"))]
    await put_library_items(served, photo("i"), uncounted, null_count, person("q"), *faces)

    for source in ("p1", "p2"):
        assert (await merge(served, source, "q")).codes == ["CONFLICT"]
    await put_library_items(served, face("late", "i", "p1"))
    await ask_library(served, UNTAG, face="late", image="i")
    left = [item for item in await library_items(served, "PERSON") if item["personId"] != "q"]
    served.clock.forward(minutes=11)

    assert [item.get("faceCount") for item in left] == [None, None]
    for source in ("p1", "p2"):
        assert (await merge(served, source, "q")).errors is None
    assert await library_items(served, "PERSON") == [person("q", faceCount=3)]


@pytest.mark.parametrize("begun", [{}, {"mergedInto": "q"}])
async def test_a_count_that_is_too_high_keeps_a_merge_open_for_the_maximal_lag_of_an_index(
    served: Served, begun: dict[str, str]
) -> None:
    await put_library_items(served, person("p", faceCount=7, **begun), person("q"), face("f", "i", "p"))

    first = await merge(served, "p", "q")
    served.clock.forward(minutes=9)
    second = await merge(served, "p", "q")
    marked = await library_items(served, "PERSON")
    served.clock.forward(minutes=2)

    for answer in (first, second):
        assert answer.codes == ["CONFLICT"]
        assert answer.errors[0]["extensions"]["retryable"] is True
        assert "to finish it, repeat it" in answer.errors[0]["message"]
    assert marked == [
        person("p", faceCount=6, mergedInto="q", mergedAt="2026-06-25T12:00:00.000Z"),
        person("q", faceCount=1, receives={"p"}),
    ]
    assert (await merge(served, "p", "q")).data["mergePersons"]["faceCount"] == 1
    assert await library_items(served, "PERSON") == [person("q", faceCount=1)]


async def test_late_faces_of_a_merged_person_are_merged_when_it_is_requested_again(
    served: Served,
) -> None:
    late, shown = face("f1", "i", "p"), face("f2", "i", "p")
    seen = tagged(photo("i"), [late, shown], person("p"))
    await put_library_items(
        served, photo_user(uploadCount=1), seen, person("q", faceCount=1), late, {**shown, "personId": "q"}
    )

    answer = await merge(served, "p", "q")

    assert answer.data["mergePersons"]["faceCount"] == 2
    assert {item["personId"] for item in await library_items(served, "FACE")} == {"q"}


@pytest.mark.parametrize("missing", [{}, {"faceCount": None}])
async def test_an_uncounted_person_without_indexed_faces_stays_while_the_index_may_lag(
    served: Served, missing: dict[str, Any]
) -> None:
    uncounted = {name: value for name, value in person("p").items() if name != "faceCount"} | missing
    await put_library_items(served, uncounted, person("q"))

    first = await merge(served, "p", "q")
    assert first.codes == ["CONFLICT"]
    assert first.errors[0]["message"].endswith("repeat it in 10 minutes.")
    served.clock.forward(minutes=11)
    assert (await merge(served, "p", "q")).errors is None
    assert await library_items(served, "PERSON") == [person("q")]


async def test_a_mark_of_a_deleted_person_is_removed_when_the_merge_is_requested_again(served: Served) -> None:
    await put_library_items(served, person("q", receives={"gone", "p"}), person("p", mergedInto="q"), person("r"))

    assert (await merge(served, "gone", "q")).data == {"mergePersons": {"personId": "q", "name": "Q", "faceCount": 0}}
    assert await library_item(served, "PERSON#q") == person("q", receives={"p"})
    for pair in (("p", "q"), ("q", "r")):
        assert (await merge(served, *pair)).errors is None
    assert await library_items(served, "PERSON") == [person("r")]


async def test_a_merge_is_exact_with_concurrent_tags_and_renames(served: Served) -> None:
    await put_library_items(served, photo_user(uploadCount=1), photo("i"), person("p"), person("q"))
    for _ in range(5):
        await tag_person(served, "i", "p")

    merged, *_ = await asyncio.gather(
        ask_library(served, MERGE, role=Role.ADMIN, one="p", into="q"),
        ask_library(served, MERGE, role=Role.ADMIN, one="p", into="q"),
        ask_library(served, RENAME, role=Role.ADMIN, id="q", input={"name": "New"}),
        *[ask_as(served, TAG_ONE, who=who) for who in ("p", "q", "p")],
    )

    assert merged["personId"] == "q"
    (left,) = await library_items(served, "PERSON")
    assert left["name"] == "New"
    await assert_consistent(served)


TAG_ONE = """mutation ($who: ID!) { tagFace(imageId: "i", input: {
  personId: $who, boundingBox: {left: 0, top: 0, width: 1, height: 1}
}) { faceId } }"""


async def test_one_of_two_opposite_merges_is_refused(served: Served) -> None:
    await put_library_items(served, photo("i"), person("p"), person("q"))
    await tag_person(served, "i", "p")
    await tag_person(served, "i", "q")

    answers = await asyncio.gather(merge(served, "p", "q"), merge(served, "q", "p"))

    (left,) = await library_items(served, "PERSON")
    assert left["faceCount"] == 2
    # The other one arrives during the merge, or after it.
    assert sorted(answer.codes for answer in answers) in ([[], ["CONFLICT"]], [[], ["NOT_FOUND"]])
    await assert_consistent(served)


async def test_a_person_in_another_merge_is_not_merged(served: Served) -> None:
    await put_library_items(served, person("p", mergedInto="q"), person("q", receives={"p"}), person("r"))
    before = await library_items(served)

    refused = [await merge(served, *pair) for pair in (("p", "r"), ("r", "p"), ("q", "r"))]

    assert [answer.codes for answer in refused] == [["CONFLICT"]] * 3
    assert {answer.errors[0]["message"] for answer in refused} == {"p is being merged into q: finish that first."}
    assert await library_items(served) == before


async def test_the_target_of_a_merge_must_exist_and_be_another(served: Served) -> None:
    await put_library_items(served, person("p"))

    same, unknown = await merge(served, "p", " p "), await merge(served, "p", "nobody")

    assert (same.codes, same.calls) == (["BAD_USER_INPUT"], [])
    assert unknown.codes == ["NOT_FOUND"]
    assert await library_items(served) == [person("p")]


async def test_only_admins_merge_persons(served: Served) -> None:
    await put_library_items(served, person("p"), person("q"))

    for role in (Role.USER, Role.SYSTEM):
        assert (await ask_as(served, MERGE, role=role, one="p", into="q")).codes == ["FORBIDDEN"]
    assert len(await library_items(served, "PERSON")) == 2


class TestLaggingIndex:
    @pytest.fixture
    def store_options(self, store_options: StoreOptions, proxy: Proxy) -> StoreOptions:
        return replace(store_options, store=proxy.url)

    def lag(self, proxy: Proxy, times: int) -> None:
        """Let the index return no items this number of times."""
        left = times

        async def lagging(proxy: Proxy, seen: Seen) -> web.StreamResponse:
            nonlocal left
            if seen.body.get("IndexName") != "personId-PK-index" or not left:
                return await forward(proxy, seen)
            left -= 1
            return web.json_response({"Items": [], "Count": 0, "ScannedCount": 0})

        proxy.always = lagging

    async def test_faces_that_the_index_shows_later_are_merged(self, served: Served, proxy: Proxy) -> None:
        await put_library_items(served, photo_user(uploadCount=1), photo("i"), person("p"), person("q"))
        await tag_person(served, "i", "p")

        self.lag(proxy, 2)
        answer = await merge(served, "p", "q")

        assert answer.data["mergePersons"]["faceCount"] == 1
        await assert_consistent(served)

    async def test_faces_that_the_index_shows_much_later_are_merged_when_the_merge_is_requested_again(
        self, served: Served, proxy: Proxy
    ) -> None:
        await put_library_items(served, photo_user(uploadCount=1), photo("i"), person("p"), person("q"))
        await tag_person(served, "i", "p")
        before = await library_items(served, "FACE")

        self.lag(proxy, 1000)
        answer = await merge(served, "p", "q")

        assert answer.codes == ["CONFLICT"]
        assert answer.errors[0]["extensions"]["retryable"] is True
        assert await library_items(served, "FACE") == before
        self.lag(proxy, 0)
        assert (await merge(served, "p", "q")).data["mergePersons"]["faceCount"] == 1
        await assert_consistent(served)

    @pytest.mark.parametrize("count", [{}, {"faceCount": None}])
    async def test_a_merge_waits_for_the_faces_of_an_uncounted_person_too(
        self, served: Served, proxy: Proxy, count: dict[str, None]
    ) -> None:
        uncounted = {name: value for name, value in person("p").items() if name != "faceCount"} | count
        await put_library_items(served, uncounted, person("q"), face("f", "i", "p"))

        self.lag(proxy, 2)
        first = await merge(served, "p", "q")
        # The faces that the index showed are moved. The next request moves those that it did not show yet.
        moved = await library_items(served, "FACE")
        await put_library_items(served, face("late", "i", "p"))
        served.clock.forward(minutes=11)
        answer = await merge(served, "p", "q")

        assert first.codes == ["CONFLICT"]
        assert {item["personId"] for item in moved} == {"q"}
        assert answer.data["mergePersons"]["faceCount"] == 2
        assert {item["personId"] for item in await library_items(served, "FACE")} == {"q"}
