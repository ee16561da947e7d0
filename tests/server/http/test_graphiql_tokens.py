"""The configuration that GraphiQL receives: demo tokens, for this machine only."""

import json
from socket import create_connection
from typing import Any
from urllib.parse import urlsplit
from urllib.request import Request as UrlRequest
from urllib.request import urlopen

import pytest
from starlette.requests import Request

from server.http.graphiql import Config
from tests.support.command_line import GatewayProcess
from tests.support.graphiql import gateway

__all__ = ["gateway"]


# The configuration of the page


def roles(tokens: list[dict[str, str]]) -> list[str]:
    return [token["name"] for token in tokens]


def config(
    headers: list[tuple[str, str]], client: tuple[str, int] | None = ("127.0.0.1", 50000), version: str = "1.1"
) -> Any:
    """Return the configuration for a request with these headers from this client."""
    raw = [(name.encode(), value.encode()) for name, value in headers]
    request = Request({"type": "http", "http_version": version, "headers": raw, "client": client})
    return json.loads(bytes(Config(lambda: [{"name": "Admin", "token": "a token"}]).response(request).body))


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:8000", "localhost", "LOCALHOST:3000", "localhost:9", "[::1]:8000", "[::1]"]
)
def test_a_request_to_a_local_name_gets_the_demo_tokens(host: str) -> None:
    assert roles(config([("host", host)])["tokens"]) == ["Admin"]
    assert roles(config([("host", host)], ("::1", 50000))["tokens"]) == ["Admin"]


@pytest.mark.parametrize(
    "headers",
    [
        [("sec-fetch-site", "same-origin"), ("sec-fetch-mode", "cors"), ("sec-fetch-dest", "empty")],
        [("sec-fetch-site", "none")],
        [("origin", "http://localhost:8000"), ("sec-fetch-site", "same-origin")],
        [("referer", "http://localhost:8000/graphql"), ("cookie", "a=b"), ("x-requested-with", "page")],
    ],
    ids=str,
)
def test_a_page_of_our_own_gets_the_demo_tokens(headers: list[tuple[str, str]]) -> None:
    assert roles(config([("host", "localhost:8000"), *headers])["tokens"]) == ["Admin"]


@pytest.mark.parametrize("version", ["1.0", "0.9"])
def test_http_before_1_1_gets_no_token(version: str) -> None:
    assert config([("host", "localhost")], version=version)["tokens"] == []


FROM_PROXIES = [
    *("via", "forwarded", "cdn-loop", "x-forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"),
    *("x-forwarded-port", "x-forwarded-server", "x-forwarded-prefix", "x-forwarded-user", "x-forwarded-anything"),
    *("x-original-host", "x-original-url", "x-original-forwarded-for", "x-real-ip", "x-client-ip", "true-client-ip"),
    *("x-cluster-client-ip", "fastly-client-ip", "cf-connecting-ip", "cf-connecting-ipv6", "cf-ray", "cf-visitor"),
    *("fly-client-ip", "x-envoy-external-address", "x-azure-clientip", "x-appengine-user-ip", "x-amzn-trace-id"),
    *("proxy-client-ip", "wl-proxy-client-ip", "x-proxyuser-ip", "x-varnish", "surrogate-capability", "client-ip"),
    *("x-arr-log-id", "x-remote-ip", "forwarded-for", "x-vercel-forwarded-for", "do-connecting-ip", "x-nginx-proxy"),
    *("proxy-connection", "max-forwards", "early-data", "tailscale-user-login", "x-cloud-trace-context"),
    *("x-request-id", "x-ms-proxy", "x-gitpod-port-number", "x-of-a-proxy-to-come"),
]

OTHER_ORIGINS = [
    *("https://evil.example", "null", "", "http://127.0.0.1", "http://127.0.0.1:8001", "http://localhost:8000"),
    *("https://127.0.0.1:8000", "http://127.0.0.1:8000.evil.example", "http://127.0.0.1:8000/", "file://"),
]


@pytest.mark.parametrize(
    "headers",
    [
        [("host", "rebound.example.com")],
        [("host", "rebound.example.com:8000")],
        [("host", "127.0.0.1.example.com")],
        [("host", "localhost.example.com:8000")],
        [("host", "example.com@127.0.0.1")],
        [("host", "127.0.0.1\n")],
        [("host", "")],
        [],
        [("host", "127.0.0.1"), ("host", "example.com")],
        [("host", "localhost:99999999")],
        [("host", "127.0.0.1:8000"), ("referer", "http://evil.example/")],
        [("host", "127.0.0.1:8000"), ("referer", "http://127.0.0.1:8000.evil.example/")],
        [("host", "127.0.0.1:8000"), ("referer", "about:blank")],
        [("host", "127.0.0.1"), ("x-forwarded-for", "192.0.2.1")],
        [("host", "127.0.0.1"), ("x-forwarded-host", "example.com")],
        [("host", "127.0.0.1"), ("forwarded", "for=192.0.2.1")],
        *([("host", "127.0.0.1"), (name, "x")] for name in FROM_PROXIES),
        *([("host", "127.0.0.1"), ("sec-fetch-site", site)] for site in ("cross-site", "same-site", "", "None", "x")),
        [("host", "127.0.0.1"), ("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")],
        *([("host", "127.0.0.1:8000"), ("origin", origin)] for origin in OTHER_ORIGINS),
        [("host", "127.0.0.1:8000"), ("origin", "http://127.0.0.1:8000"), ("origin", "https://evil.example")],
    ],
    ids=str,
)
def test_another_name_or_a_proxy_gets_no_token(headers: list[tuple[str, str]]) -> None:
    sent = config(headers)
    assert sent["tokens"] == []
    assert sent["endpoint"] == "/graphql"


@pytest.mark.parametrize("client", [None, ("192.0.2.1", 50000), ("", 0)], ids=str)
def test_another_machine_gets_no_token_whatever_host_it_names(client: tuple[str, int] | None) -> None:
    assert config([("host", "127.0.0.1")], client)["tokens"] == []


@pytest.mark.proof
def test_a_rebound_name_gets_no_token_over_the_wire(gateway: GatewayProcess) -> None:
    def tokens(**headers: str) -> list[str]:
        with urlopen(UrlRequest(f"{gateway.url}/graphiql/config.json", headers=headers), timeout=20) as response:
            return roles(json.load(response)["tokens"])

    assert tokens() == ["Demo user", "Admin", "System"]
    assert tokens(Host="rebound.example.com") == []
    # As nginx requests it, and clients that take the gateway for a proxy.
    assert _tokens_of(gateway, "GET /graphiql/config.json HTTP/1.1") == ["Demo user", "Admin", "System"]
    assert _tokens_of(gateway, "GET /graphiql/config.json HTTP/1.0") == []
    # The server ignores an upgrade in any version other than HTTP/1.1.
    assert _tokens_of(gateway, "GET /graphiql/config.json HTTP/1.0", "Connection: Upgrade", "Upgrade: x") == []
    assert _tokens_of(gateway, "GET http://example.com/graphiql/config.json HTTP/1.1") == []
    assert tokens(**{"X-Forwarded-For": "192.0.2.1"}) == []
    assert tokens(**{"Sec-Fetch-Site": "cross-site"}) == []
    assert tokens(Origin="https://evil.example") == []
    assert tokens(Origin=gateway.url) == ["Demo user", "Admin", "System"]


def _tokens_of(
    gateway: GatewayProcess, line: str, connection_field: str = "Connection: close", *fields: str
) -> list[str]:
    """Return the roles in the answer to a request with this first line and this machine as its host."""
    address = urlsplit(gateway.url)
    with create_connection((address.hostname, address.port), timeout=20) as connection:
        head = "\r\n".join((line, f"Host: {address.netloc}", connection_field, *fields, "", ""))
        connection.sendall(head.encode())
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    return roles(json.loads(answer.partition(b"\r\n\r\n")[2]).get("tokens", []))
