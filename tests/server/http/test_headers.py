"""The headers of every response, and missing paths in JSON."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import ClientSession
from starlette.types import Receive, Scope, Send

from server.app import Application
from server.http.graphiql import ROOT
from server.http.protocol import UVICORN_OPTIONS
from server.operations.outcome import MASKED
from server.settings import Settings
from tests.support.http_server import served as served_app
from tests.support.served import Served

STRICT = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
}
ROUTES = ["/", "/graphql", "/graphiql/config.json", "/media/none", "/metrics", "/healthz", "/readyz", "/nowhere"]
HSTS = "strict-transport-security"


async def response_parts(served: Served, method: str, path: str, **headers: str) -> tuple[int, dict[str, str], Any]:
    async with served.http.request(method, served.url + path, headers=headers, allow_redirects=False) as response:
        sent = {name.lower(): value for name, value in response.headers.items()}
        is_json = sent.get("content-type", "").startswith("application/json")
        return response.status, sent, await response.json() if is_json and method != "HEAD" else None


def strict_headers(received: Mapping[str, str]) -> dict[str, str]:
    return {name: received[name] for name in STRICT}


async def test_every_answer_binds_browsers(served: Served) -> None:
    pictures = {
        "content-security-policy": "default-src 'none'; sandbox",
        "cross-origin-resource-policy": "cross-origin",
    }
    for method in ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"):
        for path in ROUTES:
            _, received, _ = await response_parts(served, method, path)
            # The protocol refuses other methods before routing.
            is_told_of_pictures = path.startswith("/media") and method in ("GET", "HEAD", "POST")
            assert (path, strict_headers(received)) == (path, STRICT | (pictures if is_told_of_pictures else {}))
            assert not {"server", HSTS, "x-powered-by"} & received.keys()
            assert (path, received["cache-control"]) == (path, "no-store")
    # The protocol itself responds to this.
    status, received, body = await response_parts(served, "GET", f"/graphql?query={'a' * 40_000}")
    assert (status, strict_headers(received), body["errors"][0]["extensions"]) == (
        414,
        STRICT,
        {"code": "BAD_USER_INPUT"},
    )


async def test_files_of_the_page_are_bound_too(served: Served) -> None:
    if not (ROOT / "dist" / "index.html").exists():
        pytest.skip("The GraphiQL page is not built.")
    status, received, _ = await response_parts(served, "GET", "/graphql", accept="text/html")
    policy = dict(rule.split(" ", 1) for rule in received["content-security-policy"].split("; "))
    assert (status, strict_headers(received)) == (
        200,
        STRICT | {"content-security-policy": received["content-security-policy"]},
    )
    assert policy["script-src"] == policy["default-src"] == policy["worker-src"] == "'self'"
    for name in ("object-src", "form-action", "frame-ancestors", "base-uri"):
        assert policy[name] == "'none'"
    assert "'unsafe-eval'" not in received["content-security-policy"]
    script = next((ROOT / "dist" / "assets").glob("index-*.js")).name
    status, received, _ = await response_parts(served, "GET", f"/graphiql/assets/{script}")
    assert (status, strict_headers(received)) == (200, STRICT)
    assert received["cache-control"] == "public, max-age=31536000, immutable"


async def test_a_missing_path_is_reported_in_json(served: Served) -> None:
    for method, path, status, code, allow in (
        ("GET", "/nowhere", 404, "NOT_FOUND", None),
        ("POST", "/graphql/", 404, "NOT_FOUND", None),
        ("POST", "/graphql/x", 404, "NOT_FOUND", None),
        ("GET", "/graphiql/assets/none.js", 404, "NOT_FOUND", None),
        ("GET", "/graphiql/assets/../../server/http/endpoint.py", 404, "NOT_FOUND", None),
        ("POST", "/healthz", 405, "BAD_USER_INPUT", {"GET", "HEAD"}),
        ("DELETE", "/graphiql/config.json", 405, "BAD_USER_INPUT", {"GET", "HEAD", "OPTIONS", "POST"}),
        ("PUT", "/graphql", 405, "BAD_USER_INPUT", {"GET", "HEAD", "OPTIONS", "POST"}),
        ("OPTIONS", "/graphql", 405, "BAD_USER_INPUT", {"GET", "POST"}),
    ):
        got, received, body = await response_parts(served, method, path)
        assert (path, got, body["errors"][0]["extensions"]) == (path, status, {"code": code})
        assert body["errors"][0]["message"]
        assert received["cache-control"] == "no-store"
        assert (set(received["allow"].split(", ")) if "allow" in received else None) == allow
    status, received, _ = await response_parts(served, "HEAD", "/graphql")
    assert (status, received["allow"], received["content-type"]) == (
        405,
        "GET, POST",
        "application/json; charset=utf-8",
    )


async def test_an_internal_error_is_masked(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(_: float) -> Any:
        raise RuntimeError("the password is swordfish")

    monkeypatch.setattr(served.gateway, "readiness", broken)
    status, received, body = await response_parts(served, "GET", "/readyz")
    error = body["errors"][0]
    assert (status, error["extensions"]["code"], strict_headers(received)) == (500, "INTERNAL", STRICT)
    assert error["extensions"]["errorId"] in caplog.text
    assert "swordfish" not in error["message"]


class TestBehindTLS:
    """A public address that is https says that clients come by TLS; so does a trusted proxy, of each request."""

    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return replace(settings, public_url="https://api.example.com")

    async def test_browsers_are_to_come_by_tls_only(self, served: Served) -> None:
        for path in ROUTES:
            assert (await response_parts(served, "GET", path))[1][HSTS] == "max-age=31536000"


class TestBehindATrustedProxy:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return replace(settings, capacity=replace(settings.capacity, trusted_proxies=("127.0.0.0/8",)))

    async def test_its_word_on_tls_counts(self, served: Served) -> None:
        _, received, _ = await response_parts(served, "GET", "/healthz", **{"x-forwarded-proto": "https"})
        assert received[HSTS] == "max-age=31536000"
        assert HSTS not in (await response_parts(served, "GET", "/healthz", **{"x-forwarded-proto": "http"}))[1]


async def test_only_a_trusted_proxy_decides_about_tls(served: Served) -> None:
    assert HSTS not in (await response_parts(served, "GET", "/healthz", **{"x-forwarded-proto": "https"}))[1]


@pytest.mark.parametrize("options", [{}, UVICORN_OPTIONS])
async def test_a_fault_at_the_address_of_graphql_is_masked_and_secured(
    options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        raise RuntimeError("swordfish")

    application = Application(broken, always_https=False, proxies=[])
    async with served_app(application, **options) as url, ClientSession() as http, http.get(url) as response:
        (error,) = (await response.json())["errors"]
        assert (response.status, error["message"]) == (500, MASKED)
        assert strict_headers({name.lower(): value for name, value in response.headers.items()}) == STRICT
    assert caplog.text.count(" at the ASGI application\n") == 1
    caplog.clear()  # beside this nothing is to be logged
