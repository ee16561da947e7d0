"""Creating and renaming persons (SPARKS-W1), without losing a face."""

import asyncio
from typing import Any

import pytest

from datastore.model.identity import Role
from datastore.model.ids import uuid7
from datastore.photos.optimistic_update import OptimisticUpdate
from datastore.photos.persons import PersonRename
from tests.support.photo_items import ADA, ask_as, face, person, photo, photo_user, put_library_items
from tests.support.photo_steps import (
    CREATE,
    RENAME,
    ask_library,
    assert_consistent,
    library_item,
    library_items,
    tag_person,
)
from tests.support.served import NOON, Served

OWN = uuid7(NOON, "own")


async def create_named_person(served: Served, **given: Any) -> Any:
    return await ask_library(served, CREATE, role=Role.ADMIN, input=given)


async def rename_person(served: Served, id: str, **given: Any) -> Any:
    return await ask_library(served, RENAME, role=Role.ADMIN, id=id, input=given)


async def test_a_person_is_returned_as_stored(served: Served) -> None:
    url = "https://example.com/grace.jpg"
    answer = await ask_as(
        served, CREATE, role=Role.ADMIN, input={"name": " Grace #1 ", "thumbnailUrl": url, "personId": OWN}
    )

    assert answer.data["createPerson"] == {
        "personId": OWN,
        "name": "Grace #1",
        "faceCount": 0,
        "thumbnailUrl": url,
        "createdAt": "2026-06-25T12:00:00.000Z",
    }
    # Checks whether the person exists, and whether it is the only item of the id.
    assert answer.made == ["PutItem sparks", "Query sparks", "Query sparks"]
    assert await library_items(served) == [
        {
            "PK": f"PERSON#{OWN}",
            "SK": "PERSON#Grace %231",
            "entityType": "PERSON",
            "personId": OWN,
            "name": "Grace #1",
            "faceCount": 0,
            "thumbnailUrl": url,
            "createdAt": "2026-06-25T12:00:00.000Z",
        }
    ]


async def test_a_person_without_an_id_gets_one_in_one_write(served: Served) -> None:
    answer = await ask_as(served, CREATE, role=Role.ADMIN, input={"name": "Grace"})

    assert answer.made == ["PutItem sparks"]
    assert (await library_items(served))[0]["personId"] == answer.data["createPerson"]["personId"]


async def test_a_repeated_creation_of_a_person_returns_the_stored_one(served: Served) -> None:
    await create_named_person(served, name="Grace", personId=OWN)
    await rename_person(served, id=OWN, name="Hopper")
    before = await library_items(served)

    again = await create_named_person(served, name="Grace", personId=OWN)

    assert again["name"] == "Hopper"
    assert await library_items(served) == before


async def test_a_new_name_moves_the_item_with_all_attributes(served: Served) -> None:
    await put_library_items(served, person("p", "Grace", faceCount=5, theirs="kept"))

    answer = await ask_as(served, RENAME, role=Role.ADMIN, id="p", input={"name": "Hopper"})

    assert answer.data["updatePerson"] == {
        "personId": "p",
        "name": "Hopper",
        "faceCount": 5,
        "thumbnailUrl": "https://example.com/thumbnail.jpg",
    }
    assert answer.made == ["Query sparks", "TransactWriteItems sparks"]
    assert await library_items(served) == [person("p", "Hopper", faceCount=5, theirs="kept", version=1)]


async def test_without_a_new_name_the_item_stays_where_it_is(served: Served) -> None:
    # Another program wrote the name into the key without encoding it.
    await put_library_items(served, person("p", "A#B"))

    answer = await ask_as(served, RENAME, role=Role.ADMIN, id="p", input={"name": "A#B", "thumbnailUrl": None})

    assert answer.data["updatePerson"] == {"personId": "p", "name": "A#B", "faceCount": 0, "thumbnailUrl": None}
    assert answer.made == ["Query sparks", "UpdateItem sparks"]
    kept = person("p", "A#B", version=1)
    del kept["thumbnailUrl"]
    assert await library_items(served) == [kept]


async def test_a_renamed_person_has_the_new_name_on_photos(served: Served) -> None:
    await put_library_items(served, photo_user(), photo("i"), person("p", "Grace"))
    await tag_person(served, "i", "p")
    await rename_person(served, id="p", name="Hopper")

    answer = await served.ask('{ photo(id: "i") { persons { name } faces { person { name faceCount } } } }')

    assert answer.data["photo"] == {
        "persons": [{"name": "Hopper"}],
        "faces": [{"person": {"name": "Hopper", "faceCount": 1}}],
    }
    await tag_person(served, "i", "p")
    assert (await library_item(served, "IMAGE#i") or {})["personNames"] == {"p": "Hopper"}


async def test_concurrent_renames_and_tags_leave_one_person_with_every_face(served: Served) -> None:
    await put_library_items(served, photo_user(uploadCount=1), photo("i"), person("p"))

    await asyncio.gather(
        *[tag_person(served, "i", "p") for _ in range(6)],
        *[rename_person(served, id="p", name=f"Name {number}") for number in range(4)],
    )

    (found,) = await library_items(served, "PERSON")
    assert found["faceCount"] == 6
    await assert_consistent(served)


async def test_a_renamed_person_without_a_count_still_has_none(served: Served) -> None:
    item = person("p", "Grace")
    del item["faceCount"]
    await put_library_items(served, item, face("f", "i", "p"))

    assert (await rename_person(served, id="p", name="Hopper"))["faceCount"] is None
    assert "faceCount" not in (await library_item(served, "PERSON#p") or {})


async def test_values_out_of_bounds_are_refused(served: Served) -> None:
    wrong: list[tuple[str, Any, str]] = [
        (CREATE, {"input": {"name": " "}}, "name"),
        (CREATE, {"input": {"name": "x" * 101}}, "name"),
        (CREATE, {"input": {"name": "x", "thumbnailUrl": "ftp://x"}}, "thumbnailUrl"),
        (CREATE, {"input": {"name": "x", "personId": "p"}}, "personId"),
        (RENAME, {"id": "p", "input": {}}, "input"),
        (RENAME, {"id": "p", "input": {"name": None}}, "name"),
        (RENAME, {"id": "p", "input": {"name": "x" * 101}}, "name"),
        (RENAME, {"id": "", "input": {"name": "x"}}, "id"),
    ]
    for query, given, field in wrong:
        answer = await ask_as(served, query, role=Role.ADMIN, **given)

        assert answer.codes == ["BAD_USER_INPUT"]
        assert (answer.errors or [])[0]["extensions"]["field"] == field
        assert answer.calls == []


async def test_only_admins_create_and_rename_persons(served: Served) -> None:
    await put_library_items(served, person("p"))
    asked: list[tuple[str, dict[str, Any]]] = [
        (CREATE, {"input": {"name": "x"}}),
        (RENAME, {"id": "p", "input": {"name": "x"}}),
    ]

    for query, given in asked:
        for role in (Role.USER, Role.SYSTEM):
            assert (await ask_as(served, query, ADA, role, **given)).codes == ["FORBIDDEN"]
        assert (await served.ask(query, given)).codes == ["UNAUTHENTICATED"]
    assert await library_items(served) == [person("p")]


async def test_a_missing_person_cannot_be_changed(served: Served) -> None:
    answer = await ask_as(served, RENAME, role=Role.ADMIN, id="p", input={"name": "x"})

    assert answer.codes == ["NOT_FOUND"]
    assert await library_items(served) == []


async def test_one_of_two_concurrent_names_of_an_id_is_kept(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    person_now, only = OptimisticUpdate.person, PersonRename._only
    looked, wrote = (Barrier(2) for _ in range(2))

    async def look(current: OptimisticUpdate, person_id: str, *of: Any, **how: Any) -> Any:
        """Read the person, then wait until both creations have read it."""
        found = await person_now(current, person_id, *of, **how)
        await looked.wait()
        return found

    async def look_again(naming: PersonRename, person_id: str) -> Any:
        """Wait until both creations have written, then read again."""
        await wrote.wait()
        return await only(naming, person_id)

    monkeypatch.setattr(OptimisticUpdate, "person", look)
    monkeypatch.setattr(PersonRename, "_only", look_again)
    named = await asyncio.gather(*[create_named_person(served, name=name, personId=OWN) for name in ("Bob", "Ann")])

    assert [answer["name"] for answer in named] == ["Ann", "Ann"]
    assert [item["name"] for item in await library_items(served)] == ["Ann"]


class Barrier:
    """Blocks each task until this number of tasks waits."""

    def __init__(self, many: int) -> None:
        self._missing = many
        self._all = asyncio.Event()

    async def wait(self) -> None:
        self._missing -= 1
        if self._missing == 0:
            self._all.set()
        await self._all.wait()


@pytest.mark.parametrize("there", [{"faceCount": 1, "createdAt": "2030-01-01T00:00:00Z"}, {}])
async def test_a_late_name_loses_against_a_person_with_faces_or_an_earlier_one(
    served: Served, monkeypatch: pytest.MonkeyPatch, there: dict[str, Any]
) -> None:
    await put_library_items(served, before := person(OWN, "Zed", **there))

    async def not_yet(*_: Any, **__: Any) -> None:
        return None

    with monkeypatch.context() as early:
        early.setattr(OptimisticUpdate, "person", not_yet)
        answer = await ask_as(served, CREATE, role=Role.ADMIN, input={"name": "Ann", "personId": OWN})

    assert answer.data["createPerson"]["name"] == "Zed"
    assert answer.made == ["PutItem sparks", "Query sparks", "TransactWriteItems sparks"]
    assert await library_items(served) == [before]
