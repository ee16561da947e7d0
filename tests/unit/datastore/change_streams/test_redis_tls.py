"""Redis over TLS with certificates of a private authority: the bus, and shared budgets."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from redis import Redis

from datastore.redis.urls import check_redis_url
from server.admission.budgets import Budget
from server.admission.redis_budgets import RedisBuckets
from tests.support.bus_hosts import Hosts, direct, on_bus, take_numbers
from tests.support.redis_server import RedisServer
from tests.support.redis_tls import signed_certificate
from tests.support.scripted_stream import Script, Shard
from tests.support.until import until


class TlsServer(RedisServer):
    """A server that accepts only TLS. `authority` is the file of the authority that signed its certificate."""

    def __init__(self, folder: Path) -> None:
        authority_key, server_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
        self.authority = folder / "authority.pem"
        self.authority.write_bytes(signed_certificate("authority", authority_key, "authority", authority_key))
        self._certificate, self._key = folder / "server.pem", folder / "server.key"
        self._certificate.write_bytes(signed_certificate("server", server_key, "authority", authority_key))
        pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        self._key.write_bytes(server_key.private_bytes(pem, form, serialization.NoEncryption()))
        super().__init__()
        self.client.close()
        self.plain = f"rediss://127.0.0.1:{self.port}"
        self.url = f"{self.plain}?ssl_ca_certs={self.authority}"
        self.client = Redis.from_url(self.url, decode_responses=True)

    def start(self) -> None:
        files = {"cert": self._certificate, "key": self._key, "ca-cert": self.authority}
        options = [part for name, file in files.items() for part in (f"--tls-{name}-file", str(file))]
        self._spawn(["--port", "0", "--tls-port", str(self.port), "--tls-auth-clients", "no", *options])


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[TlsServer]:
    server = TlsServer(tmp_path)
    yield server
    server.close()


@pytest.fixture
def script() -> Script:
    return Script(a=Shard())


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


async def test_the_bus_works_over_tls_and_comes_back(stack: AsyncExitStack, script: Script, redis: TlsServer) -> None:
    check_redis_url(redis.url)
    hosts = Hosts(script, "t__", redis, stack)
    processes = [hosts.process() for _ in range(2)]
    following = [await hosts.follow(process) for process in processes]
    written = [script.write("a", "x") for _ in range(3)]
    for events in following:
        assert await take_numbers(events, 3) == written
    assert on_bus(*processes)

    redis.kill()
    await until(lambda: direct(*processes))
    redis.start()
    await until(lambda: on_bus(*processes))
    written = [script.write("a", "x")]
    for events in following:
        assert await take_numbers(events, 1) == written


async def test_budgets_are_shared_over_tls(redis: TlsServer) -> None:
    one, other = RedisBuckets(redis.url, timeout=5), RedisBuckets(redis.url, timeout=5)
    budget = Budget(100, 0.001)
    assert (await one.charge("k", budget, 60))[0]
    assert not (await other.charge("k", budget, 60))[0]
    assert one.is_available
    assert other.is_available
    await one.aclose()
    await other.aclose()


async def test_a_certificate_of_an_unknown_authority_is_refused(
    stack: AsyncExitStack, script: Script, redis: TlsServer
) -> None:
    redis.url = redis.plain
    hosts = Hosts(script, "t__", redis, stack)
    process = hosts.process()
    events = await hosts.follow(process)
    written = script.write("a", "x")
    assert await take_numbers(events, 1) == [written]
    assert process.bus.is_away
    assert direct(process)
