"""CSRF: the requests that may use GET: from programs, this site, allowed pages, and after a preflight."""

from collections.abc import AsyncIterator

import aiohttp
import pytest

from server.documents.document_cache import Documents
from server.http.endpoint import GraphQLHTTP
from server.operations.runner import Runner
from tests.support.http_server import served
from tests.support.toy_schema import SCHEMA, ToyContext, identify_toy_user

FIREFOX = {"user-agent": "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"}
CROSS = {**FIREFOX, "sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}
SAME = {**FIREFOX, "sec-fetch-site": "same-origin", "referer": "http://127.0.0.1/graphql", "cookie": "a=b"}
APP, EVIL = "https://app.example.com", "https://evil.example.com"

LET_IN = {
    "curl": {"user-agent": "curl/8.9.1", "accept": "*/*"},
    "no user agent": {"user-agent": ""},
    "node's fetch": {"user-agent": "node", "accept": "*/*", "accept-language": "*", "sec-fetch-mode": "cors"},
    "a cache": {"user-agent": "Amazon CloudFront", "via": "1.1 cloudfront", "x-forwarded-for": "192.0.2.1"},
    "a page of ours": SAME,
    "the address bar": {**FIREFOX, "sec-fetch-site": "none"},
    "an allowed page": {**CROSS, "origin": APP},
    "an allowed page, older browser": {**FIREFOX, "origin": APP, "referer": f"{APP}/"},
    "Apollo's client": {**CROSS, "origin": EVIL, "apollo-require-preflight": "true"},
    "Apollo's operation name": {**CROSS, "x-apollo-operation-name": "Quakes"},
    "another client": {**CROSS, "x-graphql-require-preflight": "1"},
    "a token": {**CROSS, "authorization": "Bearer ann"},
    "explained": {**CROSS, "x-explain": "1"},
    "JSON": {**CROSS, "content-type": "application/json"},
}
KEPT_OUT = {
    "an image of another site": CROSS,
    "a page of a sibling": {**FIREFOX, "sec-fetch-site": "same-site"},
    "fetch of another site": {**CROSS, "origin": EVIL},
    "an opaque origin": {**FIREFOX, "origin": "null"},
    "an older browser": FIREFOX,
    "an older browser with a referrer": {**FIREFOX, "referer": f"{EVIL}/"},
    "a referrer of ours, which proves nothing": {**FIREFOX, "referer": "http://127.0.0.1/graphql"},
    "an allowed origin's beginning": {**CROSS, "origin": f"{APP}.evil.example.com"},
    "a cookie": {"user-agent": "curl/8.9.1", "cookie": "a=b"},
    "an origin": {"user-agent": "curl/8.9.1", "origin": EVIL},
    "a header that is empty": {**CROSS, "apollo-require-preflight": ""},
}


@pytest.fixture
async def url() -> AsyncIterator[str]:
    app = GraphQLHTTP(Runner(Documents(SCHEMA), ToyContext), identify_toy_user, allowed_origins=[f"{APP}/"])
    async with served(app) as url:
        yield url


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
async def test_the_requests_that_may_use_get(url: str, accept: str) -> None:
    async with aiohttp.ClientSession() as session:
        for headers, status in ((LET_IN, 200), (KEPT_OUT, 403)):
            for who, sent in headers.items():
                async with session.get(f"{url}?query=%7Bhello%7D", headers={"accept": accept} | sent) as response:
                    assert (who, response.status) == (who, status)
                    if status == 403:
                        error = (await response.json())["errors"][0]
                        assert error["extensions"] == {"code": "FORBIDDEN"}
                        assert "apollo-require-preflight" in error["message"]


@pytest.mark.parametrize("headers", [CROSS, {**CROSS, "origin": EVIL}])
@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "text/plain; application/json",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
    ],
)
async def test_a_form_or_a_beacon_of_another_site_is_no_operation(
    url: str, headers: dict[str, str], content_type: str
) -> None:
    async with aiohttp.ClientSession() as session:
        sent = {**headers, "content-type": content_type}
        async with session.post(url, data=b'{"query": "mutation { change }"}', headers=sent) as response:
            assert response.status == 415
