"""A process dies after the writes of a mutation and before it stores the response: executing it again changes nothing.

The mutations are those of the contract: a declared mutation without an operation there fails a test.
"""

import re
from datetime import timedelta
from typing import Any

import pytest
from graphql import GraphQLInputObjectType, GraphQLObjectType, get_named_type

import schema as api
from datastore.dynamodb.codec import Item
from datastore.errors import Unavailable
from datastore.keyspace import TABLES
from datastore.keyspace import gateway as keys
from datastore.keyspace.gateway import GATEWAY
from datastore.model.composite_keys import Key, key_of
from datastore.model.identity import Role
from server.operations.runner import Runner
from tests.support.contract import (
    FIELDS,
    PAGE_OF,
    PAGES,
    database_of,
    every_page_with_mutations,
    feed,
    hints,
    photos,
    send,
)
from tests.support.contract.pages import Again, Field, Page
from tests.support.feed_changes import items_of
from tests.support.photo_items import ADA
from tests.support.served import Clock, Served
from tests.support.store_engines import ROOT

__all__ = ["feed"]

MUTATION: GraphQLObjectType = api.build()._schema.mutation_type  # type: ignore[assignment]
MUTATIONS_PAGE = ROOT / "docs" / "mutations.md"
VERSIONS, TIMES = {"version", "revision", "fence"}, {"updatedAt", "archivedAt", "registeredAt", "sessionStartedAt"}


def expects_version(name: str) -> bool:
    field = MUTATION.fields[name]
    inputs = [get_named_type(argument.type) for argument in field.args.values()]
    own = [kind.fields for kind in inputs if isinstance(kind, GraphQLInputObjectType)]
    return any("expectedVersion" in names for names in (field.args, *own))


class Keyed:
    """A mutation of the contract that is sent repeatedly with one idempotency key."""

    def __init__(self, served: Served, field: Field, query: str, key: str) -> None:
        self.served = served
        self._query = query
        self._key = key
        self._user = field.user
        email = PAGE_OF[field.name].email
        self._headers = served.headers(self._user, field.role, email) | {"Idempotency-Key": key}

    async def send(self) -> dict[str, Any]:
        async with self.served.http.post(
            f"{self.served.url}/graphql", json={"query": self._query}, headers=self._headers
        ) as response:
            assert "Idempotency-Replayed" not in response.headers
            answer: dict[str, Any] = await response.json()
        return answer

    async def lose_process(self, clock: Clock) -> None:
        """Restore the record of a process that died before it stored the response, and let its claim expire."""
        place = keys.idempotency_record(self._user, self._key)
        (item,) = [item for item in await items_of(database_of(self.served), GATEWAY) if item["PK"] == place.partition]
        claim = {name: value for name, value in item.items() if name not in ("body", "coding")}
        clock.forward(seconds=2)
        held = {"held_until": (clock() - timedelta(seconds=1)).timestamp()}
        await self.served.store().write_all(GATEWAY, puts=[claim | held])


async def test_a_refused_try_keeps_the_ids_for_the_next_one(
    served: Served, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyed = Keyed(served, FIELDS["reportSighting"], FIELDS["reportSighting"].operation, "full")
    first = await keyed.send()
    await keyed.lose_process(clock)

    async def refuse(*_: object, **__: object) -> None:
        raise Unavailable("All turns are taken.")

    with monkeypatch.context() as full:
        full.setattr(Runner, "_execute", refuse)
        assert (await keyed.send())["errors"][0]["extensions"]["code"] == "UNAVAILABLE"
    clock.forward(seconds=1)

    assert await keyed.send() == first


async def stored_items_of_all_tables(served: Served) -> dict[tuple[str, Key], Item]:
    """Return all items except idempotency records and request logs."""
    return {
        (table.name, key_of(table, item)): item
        for table in TABLES
        if table is not GATEWAY
        for item in await items_of(database_of(served), table)
        if item.get("entity") != "LOG"
    }


async def changes_of_the_second_execution(keyed: Keyed, clock: Clock) -> tuple[bool, set[str]]:
    """Return whether the second response differs, and the attributes that the second execution changes.

    "all" stands for an item that was created or deleted.
    """
    first = await keyed.send()
    assert "errors" not in first, first
    before = await stored_items_of_all_tables(keyed.served)
    await keyed.lose_process(clock)
    second = await keyed.send()
    after = await stored_items_of_all_tables(keyed.served)
    assert "errors" not in second or second["errors"][0]["extensions"]["code"] == "NOT_FOUND", second
    changed = set[str]()
    for place in before.keys() | after.keys():
        old, new = before.get(place), after.get(place)
        if old is None or new is None:
            changed.add("all")
        else:
            changed |= {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
    return first != second, changed


@every_page_with_mutations
async def test_a_mutation_whose_process_died_is_executed_again_in_the_same_way(
    served: Served, clock: Clock, feed: str, page: Page
) -> None:
    prepared = await page.prepare(served) | {"feed": feed}
    found = {}
    for field in page.mutations:
        if field.is_prepared_again:
            await page.prepare(served)
        keyed = Keyed(served, field, field.text(prepared), field.name)
        found[field.name] = await changes_of_the_second_execution(keyed, clock)

    # TTLs follow the clock.
    assert {name for name, (_, changed) in found.items() if changed - {"ttl"}} == mutations_with(page, Again.WRITTEN), (
        f"{page.file}: state `again=Again.WRITTEN` for a mutation that writes the same values again. Otherwise take "
        "times from `context.requested_at` and ids from `context.new_id(info)`."
    )
    assert set().union(*[changed for _, changed in found.values()]) <= VERSIONS | TIMES | {"ttl"}
    different = {name for name, (is_different, _) in found.items() if is_different}
    shows_new_values = {"archiveFixture", "endActiveMatch"}  # the time, and the fence
    assert different - shows_new_values == mutations_with(page, Again.NOTHING_THERE), (
        f"{page.file}: state `again=Again.NOTHING_THERE` for a deletion that returns what it deleted."
    )


@every_page_with_mutations
async def test_a_mutation_that_is_sent_twice_returns_its_object_while_it_exists(
    served: Served, feed: str, page: Page
) -> None:
    prepared = await page.prepare(served) | {"feed": feed}
    results = {}
    for field in page.mutations:
        if field.is_prepared_again:
            await page.prepare(served)
        first, second = [await send(served, field, prepared) for _ in range(2)]
        assert (first.errors, second.errors) == (None, None), (field.name, second.errors)
        results[field.name] = second.data[field.name]

    nothing = mutations_with(page, Again.NOTHING_THERE, Again.NOTHING_EITHER_TIME)
    assert {name for name, result in results.items() if not result} == nothing


def mutations_with(page: Page, *again: Again) -> set[str]:
    return {field.name for field in page.mutations if field.again in again}


@every_page_with_mutations
async def test_an_update_with_an_expected_version_is_executed_once(
    served: Served, clock: Clock, feed: str, page: Page
) -> None:
    prepared = await page.prepare(served) | {"feed": feed}
    for field in page.mutations:
        if expects_version(field.name):
            query = field.text(prepared)
            version = await version_for(served, field, query)
            keyed = Keyed(served, field, with_version(field, query, version), field.name)
            assert await changes_of_the_second_execution(keyed, clock) == (False, set()), field.name


def with_version(field: Field, query: str, version: int) -> str:
    where = "(" if "expectedVersion" in MUTATION.fields[field.name].args else "input: {"
    return query.replace(where, f"{where}expectedVersion: {version}, ", 1)


async def version_for(served: Served, field: Field, query: str) -> int:
    """Return the current version of the item."""
    refused = await Keyed(served, field, with_version(field, query, 1_000_000), f"{field.name}-version").send()
    assert "errors" in refused, (
        f"`{field.name}` does not compare `expectedVersion`. Declare `guard=version_guard()` at its access pattern in "
        "datastore/keyspace/."
    )
    return int(refused["errors"][0]["extensions"]["currentVersion"])


async def test_each_field_of_a_repeated_mutation_creates_the_same_ids(served: Served, clock: Clock) -> None:
    """Also if a field before it fails the second time."""
    assert (await served.ask('mutation { createUser(input: {name: "Ada"}) { userId } }', user="ada")).errors is None
    assert (await served.ask('mutation { createPost(input: {postId: "p", text: "x"}) { text } }', user="ada")).data
    query = """mutation {
      one: reportSighting(input: {area: "Harbor", category: "Cats", description: "x"}) { sightingId }
      two: reportSighting(input: {area: "Harbor", category: "Cats", description: "x"}) { sightingId reportedAt }
      createComment(postId: "p", input: {text: "Nice"}) { commentId }
      createPost(input: {text: "After it"}) { postId }
    }"""
    keyed = Keyed(served, FIELDS["reportSighting"], query, "k")
    first = (await keyed.send())["data"]
    assert first["one"] != first["two"]
    assert (await served.ask('mutation { deletePost(id: "p") { text } }', user="ada")).data
    before = await stored_items_of_all_tables(served)
    await keyed.lose_process(clock)
    second = await keyed.send()

    assert [error["path"] for error in second["errors"]] == [["createComment"]]
    assert await stored_items_of_all_tables(served) == before


async def test_later_changes_of_its_items_stay(served: Served, clock: Clock) -> None:
    """The client received the response and used it; only the process did not store it."""
    await photos.prepare_photos(served)
    person = 'mutation { createPerson(input: {name: "Eve"}) { personId } }'
    photo = 'mutation { createPhoto(input: {contentType: "image/jpeg"}) { imageId } }'
    named, reserved = (
        Keyed(served, FIELDS["createPerson"], person, "a"),
        Keyed(served, FIELDS["createPhoto"], photo, "b"),
    )
    person_id = (await named.send())["data"]["createPerson"]["personId"]
    image_id = (await reserved.send())["data"]["createPhoto"]["imageId"]
    rename = f'mutation {{ updatePerson(id: "{person_id}", input: {{name: "Eva"}}) {{ name }} }}'
    assert (await served.ask(rename, user="ada", role=Role.ADMIN)).errors is None
    objects = served.gateway.objects
    file = await objects.read(f"incoming/{photos.WAITING}/original", max_bytes=10_000)
    assert file is not None
    await objects.write(f"incoming/{image_id}/original", file, content_type="image/jpeg")
    complete = f'mutation {{ completePhoto(id: "{image_id}") {{ width }} }}'
    assert (await served.ask(complete, user="ada", email=ADA)).errors is None

    before = await stored_items_of_all_tables(served)
    await named.lose_process(clock)
    await reserved.lose_process(clock)
    assert (await named.send())["data"] == {"createPerson": {"personId": person_id}}
    (error,) = (await reserved.send())["errors"]
    assert error["extensions"]["code"] == "CONFLICT"
    assert await stored_items_of_all_tables(served) == before


async def test_a_sighting_that_would_have_expired_is_not_counted_again(served: Served, clock: Clock) -> None:
    """Its item may be deleted, so the process cannot know whether the report was counted."""
    query = 'mutation { reportSighting(input: {area: "Harbor", category: "Cats", description: "x"}) { sightingId } }'
    keyed = Keyed(served, FIELDS["reportSighting"], query, "k")
    await keyed.send()
    before = await stored_items_of_all_tables(served)
    clock.forward(minutes=30)
    await keyed.lose_process(clock)

    (error,) = (await keyed.send())["errors"]
    assert (error["extensions"]["code"], error["extensions"]["mayHaveBeenApplied"]) == ("CONFLICT", True)
    assert await stored_items_of_all_tables(served) == before


def test_effects_of_a_second_execution_are_documented() -> None:
    page = MUTATIONS_PAGE.read_text()
    deletions, updates = (Again.NOTHING_THERE, Again.NOTHING_EITHER_TIME), (Again.WRITTEN,)
    for beginning, effects in (("responds as if", deletions), ("takes effect again", updates)):
        (row,) = [line for line in page.splitlines() if line.startswith(f"| {beginning}")]
        declared = {name for contract in PAGES for name in mutations_with(contract, *effects)}
        documented = set(re.findall(r"`(\w+)`", row)) & MUTATION.fields.keys()
        assert hints(f"the row `{beginning}` of docs/mutations.md", declared, documented, "`{}`") == []


def test_each_mutation_with_an_expected_version_is_documented() -> None:
    table = re.search(
        r"^\| mutation \| `expectedVersion` is .*\n((?:\|.*\n)+)", MUTATIONS_PAGE.read_text(), re.MULTILINE
    )
    assert table is not None
    documented = {name for row in table[1].splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    declared = {name for name in MUTATION.fields if expects_version(name)}
    assert hints("the table of `expectedVersion` in docs/mutations.md", declared, documented, "a row for `{}`") == []
