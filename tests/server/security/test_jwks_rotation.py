"""Tokens of published keys on every transport, while their URL is down, returns, and rotates keys."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import jwt
import pytest

from server.settings import Settings
from tests.support.issuers import RSA_ONE, RSA_TWO, Publisher, published, publishing
from tests.support.ports import free_port
from tests.support.served import NOON, SECRET, Served

ISSUER, AUDIENCE = "https://issuer.example", "gateway"
MINE = '{ watches(userId: "ann") { area } }'


@pytest.fixture
async def publisher() -> AsyncIterator[Publisher]:
    async with publishing() as publisher:
        yield publisher


@pytest.fixture
def settings(publisher: Publisher) -> Settings:
    return Settings(
        secret=SECRET,
        port=free_port(),
        poll_interval=0.02,
        jwks_url=publisher.url,
        issuer=ISSUER,
        audience=AUDIENCE,
    )


def token(key: Any = RSA_ONE, kid: str = "one", **claims: Any) -> str:
    given = {"sub": "ann", "iss": ISSUER, "aud": AUDIENCE, "exp": int(NOON.timestamp()) + 3600}
    return jwt.encode({**given, **claims}, key, algorithm="RS256", headers={"kid": kid})


async def http(served: Served, *authorization: str, accept: str = "application/json") -> tuple[int, str, str | None]:
    """Return the status, the body and Retry-After."""
    headers = [("Authorization", value) for value in authorization] + [("Accept", accept)]
    async with served.http.post(f"{served.url}/graphql", json={"query": MINE}, headers=headers) as response:
        return response.status, await response.text(), response.headers.get("retry-after")


async def socket(served: Served, payload: dict[str, Any], *headers: tuple[str, str]) -> int | None:
    """Return the close code of a socket, or None if it was acknowledged."""
    protocols = ["graphql-transport-ws"]
    async with served.http.ws_connect(f"{served.url}/graphql", protocols=protocols, headers=headers) as connected:
        await connected.send_json({"type": "connection_init", "payload": payload})
        message = await connected.receive(timeout=50)
        return connected.close_code if message.data is None or isinstance(message.data, int) else None


async def test_every_transport_waits_for_the_keys_and_continues_with_them(served: Served, publisher: Publisher) -> None:
    bearer = f"Bearer {token()}"
    publisher.status = 503
    for _ in range(2):
        answers = await asyncio.gather(*[http(served, bearer) for _ in range(50)])
        assert {status for status, _, _ in answers} == {503}
        assert {retry for _, _, retry in answers} == {"1"}
        assert all("UNAVAILABLE" in body for _, body, _ in answers)
    assert (await http(served, bearer, accept="text/event-stream"))[0] == 503
    assert await socket(served, {"Authorization": bearer}) == 1013
    assert (publisher.fetches, publisher.most_at_once) == (1, 1)

    publisher.status, publisher.keys = 200, [published(RSA_ONE, "one")]
    served.clock.forward(seconds=1)
    assert (await http(served, bearer))[:2] == (200, '{"data":{"watches":[]}}')
    status, events, _ = await http(served, bearer, accept="text/event-stream")
    assert (status, '"watches"' in events) == (200, True)
    assert await socket(served, {"Authorization": bearer}) is None
    assert await socket(served, {}, ("Authorization", bearer)) is None
    assert publisher.fetches == 2


async def test_every_transport_refuses_the_same(served: Served, publisher: Publisher) -> None:
    publisher.keys = [published(RSA_ONE, "one")]
    good = f"Bearer {token()}"
    assert (await http(served, good))[0] == 200
    for wrong in (
        token(RSA_TWO),
        token(RSA_TWO, "two"),
        token(iss="https://other.example"),
        token(aud="other"),
        token(exp=int(NOON.timestamp()) - 60),
        token(nbf=int(NOON.timestamp()) + 60),
        token() + ".x",
        "x" * 9000,
    ):
        status, body, _ = await http(served, f"Bearer {wrong}")
        assert (status, "UNAUTHENTICATED" in body) == (401, True)
        assert wrong not in body
        assert (await http(served, f"Bearer {wrong}", accept="text/event-stream"))[0] == 401
        assert await socket(served, {"authorization": f"Bearer {wrong}"}) == 4403


async def test_two_authorizations_are_none(served: Served, publisher: Publisher) -> None:
    """A proxy in front could read another one than we do."""
    publisher.keys = [published(RSA_ONE, "one")]
    ann, bob = f"Bearer {token()}", f"Bearer {token(sub='bob')}"
    assert (await http(served, ann, bob))[0] == 401
    assert (await http(served, f"{ann}, {bob}"))[0] == 401
    assert await socket(served, {"Authorization": ann, "authorization": bob}) == 4403
    assert await socket(served, {}, ("Authorization", ann), ("Authorization", bob)) == 4403
