"""Tokens on sockets: how they come, how they are renewed without connecting again, and how they end."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from server.websocket.transport import SocketLimits
from tests.support.logs import unexpected_errors
from tests.support.toy_sockets import NOW, ServedSockets, SocketPeer, serve_websockets, world
from tests.support.until import until

EVENTS = "subscription { events { number } }"


@pytest.fixture
async def server(caplog: pytest.LogCaptureFixture) -> AsyncIterator[ServedSockets]:
    async with serve_websockets(limits=SocketLimits()) as served:
        yield served
    assert not unexpected_errors(caplog)


@pytest.mark.parametrize("key", ["Authorization", "authorization", "AUTHORIZATION"])
async def test_the_token_is_sent_with_the_init(server: ServedSockets, key: str) -> None:
    async with server.ready({key: "Bearer ann"}, additional_headers={"Authorization": "Bearer bob"}) as peer:
        await peer.subscribe("1", "{ me }")
        assert await peer.next("1") == {"data": {"me": "ann"}}


@pytest.mark.parametrize("payload", [None, {}, {"Authorization": None}, {"Authorization": ""}])
async def test_or_with_the_upgrade(server: ServedSockets, payload: Any) -> None:
    async with server.ready(payload, additional_headers={"Authorization": "Bearer bob"}) as peer:
        await peer.subscribe("1", "{ me }")
        assert await peer.next("1") == {"data": {"me": "bob"}}


@pytest.mark.parametrize(
    ("authorization", "code"), [("Bearer wrong", 4403), ("Basic x", 4403), (1, 4403), ("Bearer unlucky", 1013)]
)
async def test_a_bad_token(server: ServedSockets, authorization: Any, code: int) -> None:
    async with server.peer() as connection:
        peer = SocketPeer(connection)
        await peer.send(type="connection_init", payload={"Authorization": authorization})
        assert (await peer.closed())[0] == code


async def test_a_token_that_is_not_verified_in_time_ends_the_socket(
    server: ServedSockets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.websocket.authentication.IDENTIFY_SECONDS", 0.01)
    async with server.peer() as connection:
        peer = SocketPeer(connection)
        await peer.send(type="connection_init", payload={"Authorization": "Bearer hanging"})
        assert (await peer.closed())[0] == 1013


async def test_a_token_that_expires_ends_the_socket_before_the_next_event(server: ServedSockets) -> None:
    async with server.ready({"Authorization": "Bearer ann"}) as peer:
        await peer.subscribe("1", "subscription { events { number } }")
        await asyncio.sleep(0.02)
        world.now = NOW + 60
        world.go.set()
        assert await peer.closed() == (4403, "Token expired")


async def test_a_token_that_expires_ends_an_idle_socket_too() -> None:
    async with serve_websockets() as server, server.ready({"Authorization": "Bearer ann"}) as peer:
        world.now = NOW + 60
        assert await peer.closed() == (4403, "Token expired")


async def renew(peer: SocketPeer, authorization: Any, key: str = "authorization", **more: Any) -> None:
    await peer.send(type="ping", payload={key: authorization, **more})


@pytest.mark.parametrize("key", ["authorization", "Authorization", "AUTHORIZATION"])
async def test_a_ping_renews_the_token_of_running_operations(server: ServedSockets, key: str) -> None:
    async with server.ready({"Authorization": "Bearer ann"}) as peer:
        await peer.subscribe("1", EVENTS)
        await renew(peer, "Bearer ann//120", key)
        assert await peer.receive() == {"type": "pong", "payload": {}}
        world.now = NOW + 61
        world.go.set()
        for number in range(3):
            assert await peer.next("1") == {"data": {"events": {"number": number}}}
        assert await peer.receive() == {"type": "complete", "id": "1"}
        await peer.subscribe("2", "{ me }")
        assert await peer.next("2") == {"data": {"me": "ann"}}
        await peer.receive()
        world.now = NOW + 120
        await peer.subscribe("3", "{ me }")
        assert await peer.closed() == (4403, "Token expired")


async def test_the_next_event_counts_with_the_new_expiry(server: ServedSockets) -> None:
    async with server.ready({"Authorization": "Bearer ann"}) as peer:
        await peer.subscribe("1", EVENTS)
        await renew(peer, "Bearer ann//30")
        await peer.receive()
        world.now = NOW + 40
        world.go.set()
        assert await peer.closed() == (4403, "Token expired")


async def test_a_renewing_ping_is_answered_without_its_token(server: ServedSockets) -> None:
    async with server.ready({"Authorization": "Bearer ann"}) as peer:
        await renew(peer, "Bearer ann//120", sent=1)
        assert await peer.receive() == {"type": "pong", "payload": {"sent": 1}}


async def test_a_token_that_expired_while_nothing_was_sent_can_be_renewed(server: ServedSockets) -> None:
    async with server.ready({"Authorization": "Bearer ann"}) as peer:
        world.now = NOW + 60
        await renew(peer, "Bearer ann//120")
        await peer.receive()
        await peer.subscribe("1", "{ me }")
        assert await peer.next("1") == {"data": {"me": "ann"}}


@pytest.mark.parametrize(
    ("authorization", "reason"),
    [
        ("Bearer wrong", "Forbidden: The token's signature is wrong."),
        ("Basic ann", "Forbidden: The Authorization header must read: Bearer <token>."),
        ("Bearer bob", "Forbidden: the new token is not of the user who connected; connect again with it."),
        ("", "Forbidden: the new token is not of the user who connected; connect again with it."),
        (None, "Forbidden: the new token is not of the user who connected; connect again with it."),
        (["Bearer ann"], "Forbidden: Authorization must be a string."),
        ("Bearer ann/admin", "Forbidden: the new token grants other rights; connect again with it."),
        ("Bearer ann/user/60/ann", "Forbidden: the new token grants other rights; connect again with it."),
    ],
)
async def test_any_other_token_ends_the_socket(server: ServedSockets, authorization: Any, reason: str) -> None:
    async with server.ready({"Authorization": "Bearer ann"}) as peer:
        await peer.subscribe("1", "subscription { held }")
        await peer.next("1")
        await renew(peer, authorization)
        assert await peer.closed() == (4403, reason)
        await until(lambda: world.held == 0)


@pytest.mark.parametrize("now", ["ann/user", "ann/system", "ann/admin/60/other", "ann/admin"])
async def test_nor_may_rights_be_fewer(server: ServedSockets, now: str) -> None:
    async with server.ready({"Authorization": "Bearer ann/admin/60/ann"}) as peer:
        await renew(peer, f"Bearer {now}")
        assert await peer.closed() == (
            4403,
            "Forbidden: the new token grants other rights; connect again with it.",
        )


async def test_a_ping_cannot_sign_a_caller_in(server: ServedSockets) -> None:
    async with server.ready() as peer:
        await renew(peer, "Bearer ann")
        assert (await peer.closed())[0] == 4403
    async with server.peer() as connection:
        peer = SocketPeer(connection)
        await renew(peer, "Bearer ann")
        assert (await peer.closed())[0] == 4403


async def test_a_token_that_cannot_be_verified_now(server: ServedSockets) -> None:
    async with server.ready({"Authorization": "Bearer ann"}) as peer:
        await renew(peer, "Bearer unlucky")
        assert await peer.closed() == (1013, "The keys cannot be fetched.")


async def test_a_fault_of_ours_is_masked_under_an_id_that_the_log_has(caplog: pytest.LogCaptureFixture) -> None:
    async with serve_websockets() as server, server.peer() as connection:
        peer = SocketPeer(connection)
        await peer.send(type="connection_init", payload={"Authorization": "Bearer bug"})
        code, reason = await peer.closed()
    assert (code, reason[:22]) == (4500, "Internal server error ")
    assert f"Error {reason[22:]} at a socket" in caplog.text
    assert "has a strange token" in caplog.text
    assert "ann@example.com" not in caplog.text
