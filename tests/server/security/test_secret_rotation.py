"""Cursors, tokens, ids and addresses when gateways get another secret."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from datastore.database import StoreOptions
from datastore.keyspace.sightings import BLIP
from datastore.model.identity import Role
from runtime.container import Gateway
from server.settings import Misconfigured, Settings, from_environment
from tests.support.photo_items import ADA, person, photo, photo_user, put_library_items
from tests.support.ports import free_port
from tests.support.resuming_clients import Said, SocketClient
from tests.support.served import SECRET, Clock, Served, listening

NEW = "a new secret, with which nothing was made before"
PHOTOS = """query ($of: ID!, $after: String) {
  photosByUser(userId: $of, first: 1, after: $after) {
    nodes { imageId userId originalUrl } pageInfo { endCursor }
  }
}"""
PERSONS = "query ($after: String) { persons(first: 1, after: $after) { nodes { name } pageInfo { endCursor } } }"
REPORT = """mutation ($description: String!) {
  reportSighting(input: {area: "Downtown", category: "Cats", description: $description}) { description }
}"""

Open = Callable[..., Awaitable[Served]]


@dataclass(frozen=True)
class Made:
    """The tokens, ids, cursors and addresses that a client got from a gateway."""

    token: str
    user_id: str
    personal_cursor: str
    cursor: str
    media: str


@pytest.fixture
async def open_gateway(
    settings: Settings, store_options: StoreOptions, clock: Clock, tmp_path: Path, served: Served
) -> AsyncIterator[Open]:
    """Open another gateway on the same tables and files, with its own secrets, two photos and two persons."""
    await put_library_items(served, photo_user(), photo("one"), photo("two"), person("p1", "Ann"), person("p2", "Bea"))
    async with AsyncExitStack() as stack:

        async def open_one(**given: Any) -> Served:
            own = replace(settings, port=free_port(), public_url="http://media.test", **given)
            gateway = Gateway(own, replace(store_options, data_dir=tmp_path), now=clock)
            await stack.enter_async_context(gateway.running())
            await stack.enter_async_context(listening(gateway))
            return Served(gateway, own.url, await stack.enter_async_context(aiohttp.ClientSession()), clock)

        yield open_one


async def ask_with_token(served: Served, token: str, query: str, **variables: Any) -> Any:
    """Return the data, or the code of the error."""
    body = {"query": query, "variables": variables}
    headers = {"Authorization": f"Bearer {token}"}
    async with served.http.post(f"{served.url}/graphql", json=body, headers=headers) as response:
        answer = await response.json()
    return answer["errors"][0]["extensions"]["code"] if "errors" in answer else answer["data"]


async def made_by(served: Served) -> Made:
    token = served.token("ada", Role.ADMIN, ADA)
    services = served.gateway.services
    assert services is not None
    user_id = services.user_ids.encrypt(ADA)
    photos = (await ask_with_token(served, token, PHOTOS, of=user_id))["photosByUser"]
    persons = (await ask_with_token(served, token, PERSONS))["persons"]
    node = photos["nodes"][0]
    assert node["userId"] == user_id
    cursors = photos["pageInfo"]["endCursor"], persons["pageInfo"]["endCursor"]
    return Made(token, user_id, *cursors, node["originalUrl"].removeprefix("http://media.test"))


async def what_counts(served: Served, made: Made) -> dict[str, Any]:
    """Return how a gateway accepts what another has issued, with a token of its own where the other's is invalid."""
    by_token = await ask_with_token(served, made.token, PERSONS)
    token = served.token("ada", Role.ADMIN, ADA)
    by_id = await ask_with_token(served, token, PHOTOS, of=made.user_id)
    own_id = served.gateway.services.user_ids.encrypt(ADA) if served.gateway.services else ""
    following = await ask_with_token(served, token, PHOTOS, of=own_id, after=made.personal_cursor)
    persons = await ask_with_token(served, token, PERSONS, after=made.cursor)
    async with served.http.get(served.url + made.media) as response:
        media = response.status
    return {
        "token": by_token if isinstance(by_token, str) else "counts",
        "id": [node["imageId"] for node in by_id["photosByUser"]["nodes"]] if isinstance(by_id, dict) else by_id,
        "personal cursor": following if isinstance(following, str) else "counts",
        "cursor": persons if isinstance(persons, str) else "counts",
        "media": media,
    }


# There are no files: an accepted address is not found, another is forbidden.
ALL = {"token": "counts", "id": ["two"], "personal cursor": "counts", "cursor": "counts", "media": 404}
# An id that cannot be decrypted is that of no user.
NONE = {"token": "UNAUTHENTICATED", "id": [], "personal cursor": "BAD_CURSOR", "cursor": "BAD_CURSOR", "media": 403}


async def test_tokens_of_both_secrets_are_accepted_during_a_rotation(open_gateway: Open) -> None:
    old = await open_gateway(other_secrets=(NEW,))
    new = await open_gateway(secret=NEW, other_secrets=(SECRET,))

    assert await what_counts(new, await made_by(old)) == ALL
    assert await what_counts(old, await made_by(new)) == ALL


async def test_nothing_signed_with_an_unknown_secret_is_accepted(open_gateway: Open) -> None:
    old, new = await open_gateway(), await open_gateway(secret=NEW)

    counts = await what_counts(new, await made_by(old))

    assert counts == NONE


@pytest.mark.parametrize("is_accepted", [True, False])
async def test_a_subscription_resumes_after_an_id_signed_with_an_accepted_secret(
    open_gateway: Open, is_accepted: bool
) -> None:
    old, new = await open_gateway(), await open_gateway(secret=NEW, other_secrets=(SECRET,) if is_accepted else ())
    client = SocketClient(old.http, "subscription { sightingReported { description } }", {})

    async with client.connected(old.url) as events:
        await old.settle(BLIP)
        await assert_reported(old, "Asleep")
        assert (await next_payload(events))["data"]["sightingReported"]["description"] == "Asleep"
    await assert_reported(old, "Awake")
    async with client.connected(new.url) as events:
        if is_accepted:
            assert (await next_payload(events))["data"]["sightingReported"]["description"] == "Awake"
        else:
            assert (await next_payload(events))["errors"][0]["extensions"]["code"] == "RESYNC"
            await assert_reported(old, "Alert")
            assert (await next_payload(events))["data"]["sightingReported"]["description"] == "Alert"


async def next_payload(events: AsyncIterator[Said]) -> Any:
    payload = await anext(events)
    while "data" not in payload:  # the first payload
        payload = await anext(events)
    return payload


async def assert_reported(served: Served, description: str) -> None:
    answer = await ask_with_token(served, served.token("ada"), REPORT, description=description)
    assert answer["reportSighting"]["description"] == description


async def test_ids_of_photo_users_stay_with_a_secret_of_their_own(open_gateway: Open) -> None:
    old, new = await open_gateway(), await open_gateway(secret=NEW, user_id_secret=SECRET)

    before, after = await made_by(old), await made_by(new)

    assert after.user_id == before.user_id
    assert (await what_counts(new, before))["id"] == ["two"]
    assert after.cursor != before.cursor


def test_secrets_come_from_the_environment_and_none_may_be_short() -> None:
    given = {"GATEWAY_OTHER_SECRETS": f"{SECRET.replace(',', '')}, {'x' * 32}", "GATEWAY_USER_ID_SECRET": "y" * 32}
    found = from_environment(given)
    assert found["other_secrets"] == (SECRET.replace(",", ""), "x" * 32)
    assert found["user_id_secret"] == "y" * 32

    for name in given:
        with pytest.raises(Misconfigured, match=name):
            from_environment({name: "short"})
