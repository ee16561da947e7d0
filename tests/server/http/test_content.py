"""The files of GraphiQL and its JSON: compressed, with strong entity tags, and revalidated."""

import gzip
from pathlib import Path

import pytest
from aiohttp import ClientSession
from graphql import build_client_schema, get_introspection_query, print_schema
from httpx import ASGITransport, AsyncClient, Response

from server.http.content import MAX_ACCEPT_ENCODING_CHARACTERS, Assets, accepted_codings
from server.http.graphiql import EXAMPLES_PATH, SCHEMA_PATH, examples
from tests.support.served import Served

SCRIPT = b"let answer = 42;"


@pytest.fixture
def assets(tmp_path: Path) -> Assets:
    (tmp_path / "app-1a2b.js").write_bytes(SCRIPT)
    (tmp_path / "app-1a2b.js.br").write_bytes(b"as brotli")
    (tmp_path / "app-1a2b.js.gz").write_bytes(gzip.compress(SCRIPT))
    (tmp_path / "font-3c4d.woff2").write_bytes(b"a font")
    return Assets(directory=tmp_path)


async def ask(app: Assets, path: str, method: str = "GET", **headers: str) -> tuple[Response, bytes]:
    """Return the response and its content as it was sent."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    async with (
        AsyncClient(transport=ASGITransport(app), base_url="http://gateway.test") as client,
        client.stream(method, path, headers={"accept-encoding": "identity"} | sent) as response,
    ):
        return response, b"".join([chunk async for chunk in response.aiter_raw()])


@pytest.mark.parametrize(
    ("accepted", "codings"),
    [
        ("gzip, deflate, br, zstd", ("br", "gzip")),
        ("gzip", ("gzip",)),
        ("GZIP;q=0.5, br;q=0", ("gzip",)),
        ("*", ("br", "gzip")),
        ("*, gzip;q=0", ("br",)),
        ("*;q=0", ()),
        ("identity", ()),
        ("", ()),
        ("br;q=high, gzip ; q = 1", ("gzip",)),
        ("br" + " " * MAX_ACCEPT_ENCODING_CHARACTERS, ()),
    ],
)
def test_the_codings_that_a_request_accepts(accepted: str, codings: tuple[str, ...]) -> None:
    assert accepted_codings({"accept-encoding": accepted}) == codings


async def test_a_file_is_sent_in_the_smallest_form_that_the_client_accepts(assets: Assets) -> None:
    expected = {
        "br, gzip": ("br", b"as brotli", '"app-1a2b.js.br"'),
        "gzip": ("gzip", gzip.compress(SCRIPT), '"app-1a2b.js.gz"'),
        "identity": (None, SCRIPT, '"app-1a2b.js"'),
    }
    for accepted, (coding, content, tag) in expected.items():
        response, sent = await ask(assets, "/app-1a2b.js", accept_encoding=accepted)
        headers = response.headers
        assert (response.status_code, headers.get("content-encoding"), sent) == (200, coding, content)
        assert headers["content-type"] == "text/javascript; charset=utf-8"
        assert headers["content-length"] == str(len(content))
        assert headers["cache-control"] == "public, max-age=31536000, immutable"
        assert (headers["etag"], headers["vary"]) == (tag, "Accept-Encoding")
        response, sent = await ask(assets, "/app-1a2b.js", accept_encoding=accepted, if_none_match=f'"x", {tag}')
        assert (response.status_code, response.headers["etag"], sent) == (304, tag, b"")
        response, sent = await ask(assets, "/app-1a2b.js", "HEAD", accept_encoding=accepted)
        assert (response.headers["content-length"], sent) == (str(len(content)), b"")


async def test_a_file_without_a_smaller_form_is_sent_as_it_is(assets: Assets) -> None:
    response, sent = await ask(assets, "/font-3c4d.woff2", accept_encoding="br, gzip")
    assert (response.headers.get("content-encoding"), sent) == (None, b"a font")
    assert response.headers["vary"] == "Accept-Encoding"


async def test_compressed_files_have_no_addresses_of_their_own(served: Served) -> None:
    async with served.http.get(f"{served.url}/graphiql/assets/app-1a2b.js.br") as response:
        assert response.status == 404


async def test_examples_and_schema_are_compressed_and_revalidated(served: Served) -> None:
    async with ClientSession(auto_decompress=False) as http:
        for path in (EXAMPLES_PATH, SCHEMA_PATH):
            async with http.get(served.url + path, headers={"accept-encoding": "gzip, br"}) as response:
                small, headers = await response.read(), response.headers
            async with http.get(served.url + path, headers={"accept-encoding": "identity"}) as response:
                whole, plain = await response.read(), response.headers
            assert gzip.decompress(small) == whole
            assert len(small) < len(whole) / 4
            assert (headers["content-encoding"], plain.get("content-encoding")) == ("gzip", None)
            assert headers["etag"] != plain["etag"]
            for sent, accepted in ((headers, "gzip"), (plain, "identity")):
                assert (sent["cache-control"], sent["vary"]) == ("no-cache", "Accept-Encoding")
                conditional = {"accept-encoding": accepted, "if-none-match": sent["etag"]}
                async with http.get(served.url + path, headers=conditional) as response:
                    assert (response.status, await response.read()) == (304, b"")


async def test_the_schema_is_the_answer_to_the_introspection_query(served: Served) -> None:
    query = get_introspection_query(
        specified_by_url=True, directive_is_repeatable=True, schema_description=True, input_value_deprecation=True
    )
    async with served.http.get(served.url + SCHEMA_PATH) as response:
        kept, answered = (await response.json())["data"], (await served.ask(query)).data
    assert print_schema(build_client_schema(kept)) == print_schema(build_client_schema(answered))
    async with served.http.get(served.url + EXAMPLES_PATH) as response:
        assert await response.json() == [example.as_json() for example in examples()]
