"""HTTPS_PROXY and NO_PROXY: requests to the tables go through a proxy's tunnel, as those of botocore do."""

import asyncio
import base64
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from datastore.database import Database, StoreMisconfigured, StoreOptions, open_database
from datastore.dynamodb.http1 import connector as connecting
from datastore.dynamodb.http1.proxies import Proxy, ProxyUnusable, proxy_for
from datastore.errors import Unavailable
from datastore.infrastructure import tables
from datastore.keyspace.sightings import BLIP
from tests.support.ports import free_port
from tests.support.store_engines import new_prefix
from tests.support.wire_server import (
    Script,
    Server,
    ServerTalk,
    echo,
    on_both_loops,
    self_signed_certificate,
    serve_script,
)
from tests.support.wire_talks import ONCE, call_numbered, client_at

pytestmark = pytest.mark.breaks_rules("most servers here are no DynamoDB, and read no request")


class Tunnels:
    """A proxy that supports only CONNECT. `heads` are the heads of its requests.

    With `password` it requires that password. `places` maps targets to other addresses that it connects to.
    """

    def __init__(self, password: str | None = None, places: Mapping[str, str] | None = None) -> None:
        self.heads: list[str] = []
        self._password = password
        self._places = places or {}

    async def talk(self, talk: ServerTalk) -> None:
        head = (await talk.reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        expected = base64.b64encode(f"ada:{self._password}".encode()).decode()
        if self._password is not None and f"Proxy-Authorization: Basic {expected}\r\n" not in head:
            await talk.say(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 3\r\n\r\nNo.")
            return
        method, target, _ = head.split(" ", 2)
        assert method == "CONNECT"
        host, _, port = self._places.get(target, target).rpartition(":")
        upstream, back = await asyncio.open_connection(host, int(port))
        try:
            await talk.say(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await asyncio.gather(_pump(talk.reader, back), _pump(upstream, talk.writer))
        finally:
            back.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while content := await reader.read(2**16):
            writer.write(content)
            await writer.drain()
    writer.close()


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Unset the variables of proxies, and clear the cached TLS context."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    connecting.tls_context.cache_clear()
    yield
    connecting.tls_context.cache_clear()


@asynccontextmanager
async def behind(
    tunnels: Tunnels, folder: Path, monkeypatch: pytest.MonkeyPatch, user: str = "", script: Script = echo
) -> AsyncIterator[tuple[Server, Server]]:
    """Yield a server with TLS and the proxy in front of it."""
    public, context = self_signed_certificate(folder, "localhost")
    monkeypatch.setenv("SSL_CERT_FILE", str(public))
    async with serve_script(tunnels.talk) as proxy, serve_script(script, context, "localhost") as server:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url.replace("://", f"://{user}"))
        yield server, proxy


@on_both_loops
async def test_requests_to_tables_go_through_a_tunnel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tunnels = Tunnels()
    async with behind(tunnels, tmp_path, monkeypatch) as (server, proxy), client_at(server.url) as client:
        assert await asyncio.gather(*[call_numbered(client, number) for number in range(4)]) == [0, 1, 2, 3]
        assert await call_numbered(client, 5) == 5
        authority = server.url.removeprefix("https://")
        assert (proxy.connections, server.connections) == (4, 4)
    assert set(tunnels.heads) == {f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n"}


@on_both_loops
async def test_a_proxy_receives_name_and_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tunnels = Tunnels("p@ss w")
    async with (
        behind(tunnels, tmp_path, monkeypatch, "ada:p%40ss%20w@") as (server, _),
        client_at(server.url) as client,
    ):
        assert await call_numbered(client, 1) == 1


@on_both_loops
async def test_a_proxy_that_refuses_is_named_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with behind(Tunnels("secret"), tmp_path, monkeypatch, "ada:wrong@") as (server, proxy):
        async with client_at(server.url) as client:
            with pytest.raises(Unavailable):
                await call_numbered(client, 1)
        address = proxy.url.removeprefix("http://")
    assert server.connections == 0
    (refusal,) = [record.getMessage() for record in caplog.records if "CONNECT" in record.getMessage()]
    assert refusal.startswith(f"The store cannot be reached: The proxy {address} refuses CONNECT localhost:")
    assert "407 Proxy Authentication Required" in refusal
    assert "wrong" not in caplog.text


@pytest.mark.parametrize(
    "said", [b"", b"SSH-2.0-OpenSSH\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\nHello!", b"HTTP/1.1 " + b"x" * 70_000]
)
@on_both_loops
async def test_a_bad_tunnel_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    async def odd(talk: ServerTalk) -> None:
        await talk.reader.readuntil(b"\r\n\r\n")
        await talk.say(said)

    tunnels = Tunnels()
    monkeypatch.setattr(tunnels, "talk", odd)
    async with behind(tunnels, tmp_path, monkeypatch) as (server, _):
        async with client_at(server.url, backoff=ONCE) as client:
            with pytest.raises(Unavailable):
                await call_numbered(client, 1)
        assert server.connections == 0


@pytest.mark.parametrize("excepted", ["localhost", "example.com,LOCALHOST", "*"])
@on_both_loops
async def test_requests_to_hosts_of_no_proxy_go_directly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, excepted: str
) -> None:
    monkeypatch.setenv("NO_PROXY", excepted)
    async with behind(Tunnels(), tmp_path, monkeypatch) as (server, proxy), client_at(server.url) as client:
        assert await call_numbered(client, 1) == 1
        assert proxy.connections == 0


async def test_each_client_reads_the_proxy_for_its_url_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with behind(Tunnels(), tmp_path, monkeypatch) as (server, proxy):
        async with client_at(server.url) as client:
            assert await call_numbered(client, 1) == 1
        monkeypatch.setenv("NO_PROXY", "localhost")
        async with client_at(server.url) as client:
            assert await call_numbered(client, 2) == 2
        assert proxy.connections == 1


async def test_requests_to_a_local_engine_use_no_proxy(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    async with open_database(StoreOptions(engine)) as database:
        assert "TableNames" in await database.client.call("ListTables", {"Limit": 1})


@pytest.mark.parametrize(
    ("variables", "proxy"),
    [
        ({"HTTPS_PROXY": "http://proxy:3128"}, Proxy("proxy", 3128)),
        ({"https_proxy": "http://proxy"}, Proxy("proxy", 80)),
        ({"HTTPS_PROXY": "proxy:3128"}, Proxy("proxy", 3128)),
        ({"HTTPS_PROXY": "http://[::1]:3128/"}, Proxy("::1", 3128)),
        ({"HTTPS_PROXY": ""}, None),
        ({"HTTP_PROXY": "http://proxy:3128"}, None),
        ({"HTTPS_PROXY": "http://proxy", "NO_PROXY": ".amazonaws.com"}, None),
        ({"HTTPS_PROXY": "http://proxy", "no_proxy": "streams.dynamodb.eu-west-1.amazonaws.com"}, Proxy("proxy", 80)),
    ],
    ids=str,
)
def test_the_proxy_is_taken_from_the_environment(
    variables: dict[str, str], proxy: Proxy | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert proxy_for("https://dynamodb.eu-west-1.amazonaws.com") == proxy
    assert proxy_for("http://dynamodb.eu-west-1.amazonaws.com") is None


@pytest.mark.parametrize("proxy", ["https://proxy", "socks5://proxy", "http://", "http://proxy:port", "http://["])
async def test_a_proxy_that_cannot_be_used_is_refused_at_once(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    with pytest.raises(ProxyUnusable):
        proxy_for("https://dynamodb.eu-west-1.amazonaws.com")
    with pytest.raises(StoreMisconfigured, match="HTTPS_PROXY must be"):
        async with open_database(StoreOptions("aws", region="eu-west-1")):
            pass


# --- Through a proxy to AWS -------------------------------------------------------------------------------------------

TABLES_HOST, STREAMS_HOST = "dynamodb.eu-central-1.api.aws", "streams-dynamodb.eu-central-1.api.aws"


async def test_aws_is_reached_by_its_host_names_through_a_tunnel(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Create tables, put an item and read its change at hosts with certificates for the names of AWS."""
    files = {host: self_signed_certificate(tmp_path, host) for host in (TABLES_HOST, STREAMS_HOST)}
    authorities = tmp_path / "authorities.pem"
    authorities.write_bytes(b"".join(public.read_bytes() for public, _ in files.values()))
    monkeypatch.setenv("SSL_CERT_FILE", str(authorities))
    monkeypatch.setenv("AWS_CA_BUNDLE", str(authorities))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    host, _, port = engine.removeprefix("http://").rpartition(":")

    async def to_engine(talk: ServerTalk) -> None:
        upstream, back = await asyncio.open_connection(host, int(port))
        await asyncio.gather(_pump(talk.reader, back), _pump(upstream, talk.writer))

    async with AsyncExitStack() as stack:
        places = {}
        for name, (_, context) in files.items():
            server = await stack.enter_async_context(serve_script(to_engine, context))
            places[f"{name}:443"] = server.url.removeprefix("https://")
        tunnels = Tunnels(places=places)
        proxy = await stack.enter_async_context(serve_script(tunnels.talk))
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        options = StoreOptions(f"https://{TABLES_HOST}", prefix=new_prefix())
        database = await stack.enter_async_context(open_database(options))
        assert await tables.create(database.client, [BLIP], options.prefix) == [f"{options.prefix}blip"]
        item = {"PK": {"S": "a"}, "SK": {"S": "b"}}
        await database.client.call("PutItem", {"TableName": f"{options.prefix}blip", "Item": item})
        assert await _first_change(database, f"{options.prefix}blip") == item

    assert {head.split()[1] for head in tunnels.heads} == {f"{TABLES_HOST}:443", f"{STREAMS_HOST}:443"}


async def _first_change(database: Database, table: str) -> Any:
    call = database.client.call
    arn = (await call("DescribeTable", {"TableName": table}))["Table"]["LatestStreamArn"]
    shard = (await call("DescribeStream", {"StreamArn": arn}))["StreamDescription"]["Shards"][0]["ShardId"]
    begin = {"StreamArn": arn, "ShardId": shard, "ShardIteratorType": "TRIM_HORIZON"}
    iterator = (await call("GetShardIterator", begin))["ShardIterator"]
    (record,) = (await call("GetRecords", {"ShardIterator": iterator}))["Records"]
    return record["dynamodb"]["Keys"]
