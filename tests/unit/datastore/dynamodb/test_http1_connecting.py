"""How the client connects, and callers that leave without an effect on others."""

import asyncio
import os
import shutil
import ssl
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from datastore.dynamodb.client import Client
from datastore.dynamodb.http1 import connector as connecting
from datastore.dynamodb.retry.backoff import Backoff
from datastore.errors import Timeout, Unavailable
from datastore.session.metering import Meter
from tests.support.until import until
from tests.support.wire_server import (
    ServerTalk,
    echo,
    on_both_loops,
    self_signed_certificate,
    serve_script,
    whole_answer,
)
from tests.support.wire_talks import (
    LARGE,
    NEVER,
    ONCE,
    PATIENT,
    QUICK,
    call_numbered,
    change_limits,
    client_at,
    one_answer,
    talking,
)

pytestmark = pytest.mark.breaks_rules("the server is no DynamoDB, and reads no request")

# --- Connecting -------------------------------------------------------------------------------------------------------


@on_both_loops
async def test_a_request_that_was_never_sent_was_not_applied() -> None:
    async with serve_script(echo) as server:
        url = server.url
    meter = Meter()
    async with client_at(url) as client:
        with pytest.raises(Unavailable) as refused:
            await call_numbered(client, 1, "PutItem", meter=meter)

    assert refused.value.extensions == {"code": "UNAVAILABLE", "retryable": True}
    assert [(call.attempts, call.ambiguous, call.may_have_written) for call in meter.calls] == [
        (QUICK.attempts, False, False)
    ]


@on_both_loops
async def test_connecting_is_abandoned_after_about_a_second() -> None:
    async def silent(talk: ServerTalk) -> None:
        await talk.reader.read(10**6)
        await asyncio.Event().wait()

    meter = Meter()
    limits = replace(PATIENT, connections=1)
    async with serve_script(silent) as server:
        url = server.url.replace("http", "https")
        async with client_at(url, backoff=ONCE, limits=limits) as client:
            with pytest.raises(Timeout):
                await call_numbered(client, 1, timeout=0.05)
            known = server.connections
            call = asyncio.create_task(call_numbered(client, 1))
            await until(lambda: server.connections > known)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            change_limits(limits, connect_seconds=0.2)
            for _ in range(2):
                client.reset_breakers()
                with pytest.raises(Timeout) as late:
                    await call_numbered(client, 1, "PutItem", meter=meter)
    assert late.value.extensions == {"code": "TIMEOUT", "retryable": True}
    assert [call.ambiguous for call in meter.calls] == [False, False]


@on_both_loops
async def test_each_address_of_a_host_name_is_tried() -> None:
    async with serve_script(echo, host="localhost") as server, client_at(server.url, backoff=ONCE) as client:
        assert await call_numbered(client, 1) == 1
    async with client_at("http://no..name", backoff=ONCE) as client:
        with pytest.raises(Unavailable):
            await call_numbered(client)


@pytest.fixture
def no_trust_yet() -> Any:
    connecting.tls_context.cache_clear()
    yield
    connecting.tls_context.cache_clear()


@pytest.mark.parametrize("place", ["a file", "a folder", "a store of its own", "nowhere", "a folder without any"])
def test_the_roots_of_the_system_are_trusted_or_mozillas_if_it_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_trust_yet: None, place: str
) -> None:
    public, _ = self_signed_certificate(tmp_path, "localhost")
    file, folder = tmp_path / "roots.pem", tmp_path / "folder"
    folder.mkdir()
    (folder / "README").touch()
    if place in ("a file", "a folder"):
        shutil.copy(public, file if place == "a file" else folder / "0a1b2c3d.0")
    if place == "a store of its own":  # as on Windows
        monkeypatch.setattr(ssl.SSLContext, "load_default_certs", lambda own, _: own.load_verify_locations(public))
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    monkeypatch.setenv("SSL_CERT_DIR", "nowhere" if place == "nowhere" else f"nowhere{os.pathsep}{folder}")

    context = connecting.tls_context()

    # The roots in a folder are loaded when they are needed.
    roots = {"a file": [1], "a folder": [0], "a store of its own": [1]}.get(place, range(100, 1000))
    assert context.cert_store_stats()["x509"] in roots
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


@on_both_loops
async def test_tls_is_used_with_the_trust_of_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_trust_yet: None
) -> None:
    public, context = self_signed_certificate(tmp_path, "localhost")
    monkeypatch.setenv("SSL_CERT_FILE", str(public))
    names: list[str | None] = []
    context.sni_callback = lambda _object, name, _context: names.append(name)

    async with serve_script(echo, context, "localhost") as server, client_at(server.url, backoff=ONCE) as client:
        assert await asyncio.gather(*[call_numbered(client, number) for number in range(8)]) == list(range(8))
        assert await client.call("PutItem", LARGE) == LARGE
        assert (set(names), server.connections) == ({"localhost"}, 8)


@on_both_loops
async def test_a_read_over_tls_is_retried_when_its_connection_was_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_trust_yet: None
) -> None:
    public, context = self_signed_certificate(tmp_path, "localhost")
    monkeypatch.setenv("SSL_CERT_FILE", str(public))

    async with serve_script(one_answer, context, "localhost") as server:
        async with client_at(server.url, backoff=NEVER) as client:
            assert [await call_numbered(client, number) for number in range(3)] == [0, 1, 2]
        assert server.connections == 3


@pytest.mark.parametrize("fault", ["another name", "not trusted"])
@on_both_loops
async def test_nothing_is_sent_to_a_server_that_cannot_prove_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_trust_yet: None, fault: str
) -> None:
    public, context = self_signed_certificate(tmp_path, "localhost" if fault == "not trusted" else "dynamodb.example")
    if fault == "another name":
        monkeypatch.setenv("SSL_CERT_FILE", str(public))
    heard: list[Any] = []
    meter = Meter()

    async def script(talk: ServerTalk) -> None:
        heard.append(await talk.asked())

    async with serve_script(script, context, "localhost") as server, client_at(server.url, backoff=ONCE) as client:
        with pytest.raises(Unavailable) as refused:
            await call_numbered(client, 1, "PutItem", meter=meter)

    assert isinstance(refused.value.__cause__, Exception)
    assert "retryable" in refused.value.extensions
    assert [call.ambiguous for call in meter.calls] == [False]
    assert heard == []


# --- Leaving ----------------------------------------------------------------------------------------------------------


@on_both_loops
async def test_closing_the_client_ends_every_call_and_connection() -> None:
    async def silent(talk: ServerTalk) -> None:
        await talk.asked()
        await talk.asked()

    async with serve_script(silent) as server:
        async with client_at(server.url, backoff=Backoff(5, 5), limits=replace(PATIENT, connections=2)) as client:
            calls = [asyncio.create_task(call_numbered(client, number)) for number in range(5)]
            await until(lambda: server.open == 2)
        ended = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(failure) for failure in ended] == [Unavailable] * 5
        await until(lambda: server.open == 0)
        with pytest.raises(Unavailable):
            await call_numbered(client)


class Stepped:
    """A driver of a coroutine without a task: it takes the next step when the awaited future is done."""

    def __init__(self, work: Coroutine[Any, Any, Any]) -> None:
        self._work = work
        self.waits: asyncio.Future[Any] | None = None
        self.steps = 0
        self.ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.step()

    def step(self, *_: object, problem: BaseException | None = None) -> None:
        try:
            waits = self._work.send(None) if problem is None else self._work.throw(problem)
        except StopIteration as done:
            self.ended.set_result(done.value)
        except BaseException as failed:
            self.ended.set_exception(failed)
        else:
            self.waits = waits
            self.steps += 1
            waits._asyncio_future_blocking = False
            waits.add_done_callback(self.step)

    def leave(self) -> None:
        assert self.waits is not None
        self.waits.remove_done_callback(self.step)
        self.step(problem=asyncio.CancelledError())

    def close(self) -> None:
        if self.waits is not None:
            self.waits.remove_done_callback(self.step)
        self._work.close()


@on_both_loops
async def test_a_call_without_a_task_can_be_driven_timed_and_left() -> None:
    async def script(talk: ServerTalk) -> None:
        while True:
            asked = await talk.asked()
            if asked["number"] < 0:
                await asyncio.Event().wait()
            await talk.say(whole_answer(asked))

    async def driven(client: Client, number: int, **options: Any) -> Any:
        stepped: list[Stepped] = []
        asyncio.get_running_loop().call_soon(lambda: stepped.append(Stepped(call_numbered(client, number, **options))))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return stepped[0]

    async with talking(script, backoff=ONCE, limits=replace(PATIENT, connections=1)) as (client, server):
        calls = [await driven(client, number) for number in range(3)]
        assert [await call.ended for call in calls] == [0, 1, 2]
        late, waiting = await driven(client, -1, timeout=0.5), await driven(client, 5)
        with pytest.raises(Timeout):
            await late.ended
        assert await waiting.ended == 5
        left, waiting = await driven(client, -1), await driven(client, 6)
        left.leave()
        with pytest.raises(asyncio.CancelledError):
            await left.ended
        assert await waiting.ended == 6
        assert server.connections == 3


@pytest.mark.parametrize("secure", [False, True])
@on_both_loops
async def test_a_caller_that_leaves_at_any_await_disturbs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_trust_yet: None, secure: bool
) -> None:
    """The awaits: for credentials, in the queue, for a connection, while sending, for the response, and between two
    tries. The caller leaves one await later each time, until the call is answered.
    """
    public, context = self_signed_certificate(tmp_path, "localhost")
    monkeypatch.setenv("SSL_CERT_FILE", str(public))
    large = {"TableName": "t", "number": -1, "text": "x" * 1_000_000}

    async def script(talk: ServerTalk) -> None:
        while True:
            asked = await talk.asked()
            busy = "text" in asked and talk.number % 2 == 0
            await talk.say(whole_answer(asked, status="503 Busy" if busy else "200 OK"), pause=0.001)

    async def leave_at(client: Client, steps: int) -> bool:
        """Return whether the call was left at this step. Otherwise it has been answered."""
        left = Stepped(client.call("PutItem", large))
        while left.steps < steps and not left.ended.done():  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0)
        if not left.ended.done():
            left.leave()
            with pytest.raises(asyncio.CancelledError):
                await left.ended
            return True
        assert await left.ended == large
        return False

    async with serve_script(script, context if secure else None, "localhost") as server:
        for steps in range(1, 99):
            async with client_at(
                server.url, limits=replace(PATIENT, connections=2), backoff=Backoff(0.001, 0.001, 99)
            ) as client:
                others = [asyncio.create_task(call_numbered(client, number)) for number in range(4)]
                await asyncio.sleep(0)
                gone = await leave_at(client, steps)
                assert await asyncio.gather(*others) == [0, 1, 2, 3]
                assert await asyncio.gather(*[call_numbered(client, number) for number in range(4)]) == [0, 1, 2, 3]
            if not gone:
                break
        assert steps > 3


@pytest.mark.parametrize("steps", [1, 2, 3])
@on_both_loops
async def test_a_closed_call_releases_its_slot(steps: int) -> None:
    """This holds even in the turn of the event loop in which it began to connect."""
    async with talking(echo, limits=replace(PATIENT, connections=1)) as (client, _):
        call = Stepped(call_numbered(client, 1))
        while call.steps < steps and not call.ended.done():  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0)
        call.close()
        assert await call_numbered(client, 2, timeout=30) == 2
