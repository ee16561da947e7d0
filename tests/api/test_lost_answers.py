"""The response to each write of each mutation is lost: the mutation reports success, and is executed once.

A retry is not refused because of what the first try wrote. The mutations are those of the contract, in the order of
`test_repeated_mutations`.
"""

import json
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from datastore.database import StoreOptions
from datastore.dynamodb.codec import Item, decode_item
from datastore.keyspace import TABLES
from datastore.model.access_patterns import WRITES
from datastore.model.composite_keys import Key, key_of
from tests.support.contract import FIELDS, PAGE_OF, database_of, every_page_with_mutations, feed, matches
from tests.support.contract.pages import Field, Page
from tests.support.fault_proxy import Proxy, Seen, forward, lose_answer, plain_error
from tests.support.feed_changes import items_of
from tests.support.served import Clock, Served

__all__ = ["feed"]

Place = tuple[str, Key]


@pytest.fixture
def store_options(store_options: StoreOptions, proxy: Proxy) -> StoreOptions:
    return replace(store_options, store=proxy.url)


class LoseFirstAnswers:
    """A proxy fault that loses the response to the first try of each write."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._tables = {database_of(served).prefix + table.name: table for table in TABLES}
        self._lost: set[str] = set()
        self.count = 0
        #: The operations whose second try changed an item.
        self.changed: list[str] = []

    async def __call__(self, proxy: Proxy, seen: Seen) -> web.StreamResponse:
        if not seen.operation.startswith(WRITES):
            return await forward(proxy, seen)
        places = self._places(seen)
        if all(key.partition.startswith("LOG#") for _, key in places):
            return await forward(proxy, seen)  # an earlier request's log, written in the background
        write = f"{seen.operation} {sorted(places)}"
        if write not in self._lost:
            self._lost.add(write)
            self.count += 1
            return await lose_answer(proxy, seen)
        self._lost.discard(write)
        before = await self._items(places)
        answer = await forward(proxy, seen)
        if await self._items(places) != before:
            self.changed.append(f"{seen.operation} {json.dumps(seen.body)}")
        return answer

    def _places(self, seen: Seen) -> list[Place]:
        if "RequestItems" in seen.body:
            bodies = [
                {"TableName": name} | body
                for name, requests in seen.body["RequestItems"].items()
                for request in requests
                for body in request.values()
            ]
        elif "TransactItems" in seen.body:
            bodies = [body for action in seen.body["TransactItems"] for body in action.values()]
        else:
            bodies = [seen.body]
        return [self._place(body) for body in bodies]

    def _place(self, body: dict[str, Any]) -> Place:
        return body["TableName"], key_of(self._tables[body["TableName"]], decode_item(body.get("Key") or body["Item"]))

    async def _items(self, places: list[Place]) -> list[Item]:
        return [
            item
            for name in sorted({name for name, _ in places})
            for item in await items_of(database_of(self._served), self._tables[name])
            if (name, key_of(self._tables[name], item)) in places
        ]


async def send_mutation(served: Served, field: Field, query: str) -> dict[str, Any]:
    headers = served.headers(field.user, field.role, PAGE_OF[field.name].email)
    async with served.http.post(f"{served.url}/graphql", json={"query": query}, headers=headers) as response:
        answer: dict[str, Any] = await response.json()
    return answer


@every_page_with_mutations
async def test_a_mutation_with_lost_responses_is_executed_once_and_says_so(
    served: Served, clock: Clock, feed: str, proxy: Proxy, page: Page
) -> None:
    prepared = await page.prepare(served) | {"feed": feed}
    found: dict[str, tuple[list[dict[str, Any]], list[str]]] = {}
    counts: dict[str, int] = {}
    for field in page.mutations:
        if field.is_prepared_again:
            await page.prepare(served)
        clock.forward(seconds=2)
        proxy.always = faults = LoseFirstAnswers(served)
        answer = await send_mutation(served, field, field.text(prepared))
        proxy.always = None
        codes = [error["extensions"] for error in answer.get("errors", ())]
        found[field.name] = (codes, faults.changed)
        counts[field.name] = faults.count

    ambiguous: list[dict[str, Any]] = [{"code": "UNAVAILABLE", "retryable": False, "mayHaveBeenApplied": True}]
    # The response of a deletion is the deleted item, which is no longer available to the retry.
    assert {name: codes for name, (codes, _) in found.items() if codes} == {
        field.name: ambiguous for field in page.mutations if field.is_ambiguous
    }, f"{page.file}: state `is_ambiguous` for a mutation whose retry cannot know whether the first try was applied."
    assert {name: changed for name, (_, changed) in found.items() if changed} == {}
    # The mutation reads before it writes, and finds no comment.
    assert {name for name, count in counts.items() if not count} == {"deleteComment"} & counts.keys()


async def test_a_match_is_registered_deactivated_and_deleted_once(served: Served, proxy: Proxy) -> None:
    await matches.prepare_matches(served)
    answers = []
    for name in ("registerActiveMatch", "endActiveMatch", "deleteActiveMatch"):
        proxy.always = faults = LoseFirstAnswers(served)
        answers.append(
            (await send_mutation(served, FIELDS[name], f'mutation {{ it: {name}(id: "m1") {{ fence }} }}'))["data"][
                "it"
            ]
        )
        proxy.always = None
        assert (faults.count, faults.changed) == (1, [])

    assert answers == [{"fence": 1}, {"fence": 2}, None]


@pytest.mark.proof
async def test_a_failure_after_a_write_is_not_called_retryable(served: Served, proxy: Proxy) -> None:
    """A client that retries would execute the write twice."""
    watch = 'createWatch(input: {area: "Harbor", category: "%s"}) { category }'
    two_writes = f"mutation {{ first: {watch % 'Cats'} second: {watch % 'Street Music'} }}"

    async def throttle_after_the_first_write(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        if seen.operation.startswith(WRITES):
            proxy.always = plain_error(429)
        return await forward(proxy, seen)

    proxy.always = throttle_after_the_first_write
    answer = await served.ask(two_writes, user="ada")
    proxy.always = plain_error(429)
    refused = await served.ask(two_writes, user="ada")
    proxy.always = None

    assert answer.errors is not None
    assert refused.errors is not None
    details = answer.errors[0]["extensions"]
    assert (details["code"], details["retryable"], details["mayHaveBeenApplied"]) == ("THROTTLED", False, True)
    assert refused.errors[0]["extensions"]["retryable"] is True
