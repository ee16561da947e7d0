"""Items change between the read and the write of an operation: each runs just before the transaction of another."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import pytest

from datastore.dynamodb.retry.backoff import Backoff
from datastore.model.access_patterns import AccessPattern
from datastore.model.identity import Role
from datastore.photos import optimistic_update as current
from datastore.photos.lookups import Lookups
from datastore.photos.merge_persons import PersonMerge
from datastore.photos.optimistic_update import ChangedMeanwhile, OptimisticUpdate
from datastore.session.writes import Action
from tests.support.photo_items import ask_as, face, person, photo, photo_user, put_library_items, tagged
from tests.support.photo_steps import (
    BOX,
    DELETE,
    MERGE,
    RENAME,
    TAG,
    UNTAG,
    assert_consistent,
    library_item,
    library_items,
)
from tests.support.served import Answer, Served

Operation = Callable[[Served, str], Awaitable[Any]]
ADMIN = Role.ADMIN


async def tags(served: Served, at: str) -> Any:
    return await ask_as(served, TAG, image=f"i{at}", input={"personId": f"p{at}", "boundingBox": BOX})


async def untags(served: Served, at: str) -> Any:
    return await ask_as(served, UNTAG, face=f"f{at}", image=f"i{at}")


async def untags_as_admin(served: Served, at: str) -> Any:
    return await ask_as(served, UNTAG, None, ADMIN, face=f"f{at}", image=f"i{at}")


async def renames(served: Served, at: str) -> Any:
    return await ask_as(served, RENAME, role=ADMIN, id=f"p{at}", input={"name": "New"})


async def renames_the_other(served: Served, at: str) -> Any:
    return await ask_as(served, RENAME, role=ADMIN, id=f"q{at}", input={"name": "New"})


async def deletes(served: Served, at: str) -> Any:
    return await ask_as(served, DELETE, id=f"i{at}")


async def deletes_as_admin(served: Served, at: str) -> Any:
    return await ask_as(served, DELETE, None, ADMIN, id=f"i{at}")


async def merges(served: Served, at: str) -> Any:
    return await ask_as(served, MERGE, role=ADMIN, one=f"p{at}", into=f"q{at}")


async def merges_back(served: Served, at: str) -> Any:
    return await ask_as(served, MERGE, role=ADMIN, one=f"q{at}", into=f"p{at}")


async def begins(served: Served, one: str, into: str) -> None:
    """Start a merge, and leave it unfinished."""
    store = served.store()
    await PersonMerge(store, Lookups(store), served.clock())._start(one, into)


# The operations that find no item after another one.
GONE = {"tags": {"deletes", "merges"}, "renames": {"merges"}}
OPERATIONS: tuple[Operation, ...] = (tags, untags, renames, renames_the_other, deletes, merges, merges_back)


class BeforeTransaction:
    """Runs an operation just before a transaction of another one, after its reads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._left = 0
        self._inner: Callable[[], Awaitable[Any]] | None = None
        commit = OptimisticUpdate.commit

        async def commit_after_inner(
            current: OptimisticUpdate, pattern: AccessPattern, actions: Sequence[Action]
        ) -> None:
            self._left -= 1
            if self._left == 0 and self._inner is not None:
                await self._inner()
            await commit(current, pattern, actions)

        monkeypatch.setattr(OptimisticUpdate, "commit", commit_after_inner)

    async def run(self, outer: Awaitable[Answer], inner: Callable[[], Awaitable[Any]], transaction: int) -> Answer:
        """Return the response of `outer`. `inner` runs before its transaction with this number, counted from 1."""
        self._left, self._inner = transaction, inner
        answer = await outer
        self._left = 0
        return answer


async def place_photos(served: Served, count: int) -> None:
    """Store `count` photos, each with a face of each of two persons."""
    await put_library_items(served, photo_user(uploadCount=count))
    for number in range(count):
        pair = person(f"p{number}", faceCount=1), person(f"q{number}", faceCount=1)
        faces = [face(f"f{number}", f"i{number}", f"p{number}"), face(f"g{number}", f"i{number}", f"q{number}")]
        await put_library_items(served, *pair, tagged(photo(f"i{number}"), faces, *pair), *faces)


@pytest.mark.parametrize("outer", [tags, untags, untags_as_admin, renames, deletes, deletes_as_admin])
async def test_an_item_that_changed_since_its_read_is_read_again(
    served: Served, monkeypatch: pytest.MonkeyPatch, outer: Operation
) -> None:
    await place_photos(served, len(OPERATIONS))
    between = BeforeTransaction(monkeypatch)
    codes = {}

    for number, inner in enumerate(OPERATIONS):
        at = str(number)
        answer = await between.run(outer(served, at), partial(inner, served, at), 1)
        codes[inner.__name__] = answer.codes

    # A deleted photo cannot be tagged. A merged person can be neither renamed nor tagged.
    gone = GONE.get(outer.__name__, set())
    assert codes == {name: ["NOT_FOUND"] if name in gone else [] for name in codes}
    await assert_consistent(served)


async def test_a_person_that_is_being_merged_is_tagged_as_the_other(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await place_photos(served, 1)

    answer = await BeforeTransaction(monkeypatch).run(tags(served, "0"), partial(begins, served, "p0", "q0"), 1)

    assert answer.data["tagFace"]["personId"] == "q0"
    assert (await merges(served, "0")).data["mergePersons"]["faceCount"] == 3
    await assert_consistent(served)


async def test_an_item_that_changes_too_often_is_reported_as_retryable(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await place_photos(served, 1)
    before = await library_items(served)

    async def changed(_: OptimisticUpdate, __: AccessPattern, ___: Sequence[Action]) -> None:
        raise ChangedMeanwhile

    monkeypatch.setattr(current, "RETRIES_OF_CHANGES", Backoff(initial=0.0, maximum=0.0, attempts=3))
    monkeypatch.setattr(OptimisticUpdate, "commit", changed)

    for operation in (tags, untags, renames, deletes, merges):
        answer = await operation(served, "0")
        assert answer.codes == ["CONFLICT"]
        assert answer.errors[0]["extensions"]["retryable"] is True
    assert await library_items(served) == before


async def test_a_new_name_keeps_concurrent_changes(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    await place_photos(served, 3)
    between, changes = BeforeTransaction(monkeypatch), {"thumbnailUrl": None}

    await between.run(renames(served, "0"), partial(begins, served, "p0", "q0"), 1)
    await between.run(renames(served, "1"), partial(begins, served, "q1", "p1"), 1)
    await between.run(renames(served, "2"), partial(ask_as, served, RENAME, role=ADMIN, id="p2", input=changes), 1)

    first, second, third = [await library_item(served, f"PERSON#p{number}") or {} for number in range(3)]
    assert [item["name"] for item in (first, second, third)] == ["New"] * 3
    assert (first["mergedInto"], second["receives"], "thumbnailUrl" in third) == ("q0", {"q1"}, False)


async def test_the_first_of_conflicting_merges_is_kept(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    await place_photos(served, 3)
    between = BeforeTransaction(monkeypatch)

    for at, begun in enumerate((("r0", "p0"), ("p1", "r1"), ("q2", "r2"))):
        await put_library_items(served, person(f"r{at}"))
        answer = await between.run(merges(served, str(at)), partial(begins, served, *begun), 1)
        assert answer.codes == ["CONFLICT"]
        assert (await ask_as(served, MERGE, role=ADMIN, one=begun[0], into=begun[1])).errors is None
        # Then the other merge is possible, unless its target was merged, too.
        assert (await merges(served, str(at))).codes == (["NOT_FOUND"] if begun[0] == "q2" else [])

    await assert_consistent(served)


@pytest.mark.parametrize("transaction", [1, 2, 3])
async def test_a_merge_is_exact_with_any_operation_between_its_transactions(
    served: Served, monkeypatch: pytest.MonkeyPatch, transaction: int
) -> None:
    await place_photos(served, len(OPERATIONS))
    between = BeforeTransaction(monkeypatch)

    for number, inner in enumerate(OPERATIONS):
        at = str(number)
        answer = await between.run(merges(served, at), partial(inner, served, at), transaction)
        assert answer.codes == (["NOT_FOUND"] if inner is merges_back and transaction == 1 else [])

    left = {item["personId"] for item in await library_items(served, "PERSON")}
    into = "p" if transaction == 1 else "q"
    assert left == {*[f"q{number}" for number in range(6)], f"{into}6"}
    await assert_consistent(served)
