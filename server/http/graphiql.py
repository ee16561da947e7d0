"""The GraphiQL page: its built files, and its configuration with examples and, in a demo, tokens."""

import ipaddress
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import orjson
from graphql import GraphQLSchema
from graphql.utilities import introspection_from_schema
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import request_response
from starlette.types import ASGIApp, Scope

from server.http.content import Assets, Content
from server.security.origins import canonical_origin

ROOT = Path(__file__).resolve().parents[2] / "web"
PAGE = ROOT / "dist" / "index.html"
TITLE = "DynamoDB GraphQL gateway"
EXAMPLES_PATH, SCHEMA_PATH = "/graphiql/examples.json", "/graphiql/schema.json"
# Monaco writes style elements and inlines its fonts. Scripts, workers and connections (in CSP 3 WebSockets, too) are of
# the page's own origin only. The page uploads to the bucket of the photos, if there is one, and shows its pictures.
POLICY = (
    "default-src 'self'; script-src 'self'; worker-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:{bucket}; font-src 'self' data:; connect-src 'self'{bucket}; "
    "object-src 'none'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
# A file may begin with `# group …`, the name of its group. A line such as `# QUAKE-2 …` begins an example; `# tab`,
# `# as admin`, `# variables {…}` and `# find {…}` are its attributes. Comments of the query itself are indented.
_GROUP = re.compile(r"# group (.+)\n\s*")
_BEGINNING = re.compile(r"^(?=# [A-Z])", re.M)
# A URL with one of these parameters is an operation, even when a browser follows a link.
_OPERATION_PARAMETERS = {"query", "documentId", "extensions"}
# A browser's request for the page is a visit. With a longer query string it is none, and GraphQL reports the error.
MAX_VISIT_BYTES = 2048
_THIS_MACHINE = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d{1,5})?", re.I)
# The headers that browsers and command-line clients send. A proxy adds another header to the requests that it forwards.
_CLIENT_HEADERS = re.compile(
    r"host|connection|user-agent|accept(-(encoding|language|charset))?|sec-(fetch|ch|gpc)\b.*|cookie|dnt|te|priority"
    r"|upgrade-insecure-requests|cache-control|pragma|referer|origin|if-(none-match|modified-since)|content-(type|length)"
    r"|authorization|keep-alive|save-data|purpose|x-requested-with"
)
_SAME_SITE = ("same-origin", "none")


@dataclass(frozen=True, slots=True)
class Example:
    """An operation to try."""

    group: str
    name: str
    query: str
    #: The variables, or a description of each if `find` finds no values.
    variables: dict[str, Any] | None
    #: A query for values that change daily: variables other than null are the fields of those names in the first object
    #: of its response that has all of them.
    find: str | None
    #: The role that the operation needs.
    run_as: str | None
    #: Whether the page opens the example in a tab at the start.
    tab: bool

    def as_json(self) -> dict[str, Any]:
        """Return the example in the format that the page reads."""
        fields = asdict(self)
        return fields | {"as": fields.pop("run_as")}


def examples() -> list[Example]:
    """Return the operations in `web/examples`: a file has those of a system or of a part (`matches-reference`)."""
    files = sorted((ROOT / "examples").glob("*.graphql"))
    return [example for file in files for example in _read_file(file)]


def _read_file(file: Path) -> Iterator[Example]:
    text = file.read_text()
    heading = _GROUP.match(text)
    if heading is None:
        return _read(file.stem.replace("-", " ").capitalize(), text)
    return _read(heading[1], text[heading.end() :])


def _read(group: str, text: str) -> Iterator[Example]:
    for block in filter(None, _BEGINNING.split(text)):
        lines = block.strip().splitlines()
        name, *comments = [line.removeprefix("# ") for line in lines if line.startswith("# ")]
        attributes = dict(comment.partition(" ")[::2] for comment in comments)
        yield Example(
            group=group,
            name=name,
            query="\n".join(line for line in lines if not line.startswith("# ")) + "\n",
            variables=orjson.loads(attributes["variables"]) if "variables" in attributes else None,
            find=attributes.get("find"),
            run_as=attributes.get("as"),
            tab="tab" in attributes,
        )


class Config:
    """The page, its configuration, its examples and the schema.

    `tokens` returns new demo tokens at each call. `url` is the prefix of the gateway's own URLs (signed URLs of files),
    by which the page recognizes them, whatever host name it was opened with. `bucket` returns the origin of the bucket
    with the photos, if there is one. `schema` returns the schema if every caller may read it. Without it there are no
    examples either: they reveal the schema.
    """

    def __init__(
        self,
        tokens: Callable[[], list[dict[str, str]]],
        url: str = "",
        *,
        bucket: Callable[[], str | None] = lambda: None,
        schema: Callable[[], GraphQLSchema] | None = None,
    ) -> None:
        self._bucket = bucket
        self._tokens = tokens
        self._url = url
        self._schema = schema

    @cached_property
    def _examples(self) -> Content:
        return Content(orjson.dumps([example.as_json() for example in examples()]), "application/json")

    @cached_property
    def _introspection(self) -> Content:
        assert self._schema is not None
        return Content(orjson.dumps({"data": introspection_from_schema(self._schema())}), "application/json")

    def page(self) -> ASGIApp:
        """Return the page. Except for photos it loads nothing from other origins."""
        if not PAGE.exists():
            return PlainTextResponse("The GraphiQL page is not built: run `make setup`.\n", status_code=503)
        content = Content(PAGE.read_bytes(), "text/html")
        headers = HEADERS | {"Content-Security-Policy": self.policy()}
        return request_response(lambda request: content.response(request, headers))

    def policy(self) -> str:
        """Return the Content-Security-Policy of the page."""
        bucket = self._bucket()
        return POLICY.format(bucket=f" {bucket}" if bucket else "")

    def response(self, request: Request) -> Response:
        """Return the configuration; with demo tokens only if the request comes from this machine."""
        config = {
            "title": TITLE,
            "endpoint": "/graphql",
            "url": self._url,
            "media": [f"{origin}/" for origin in (self._url and f"{self._url}/media", self._bucket()) if origin],
            "examples": EXAMPLES_PATH if self._schema else None,
            "schema": SCHEMA_PATH if self._schema else None,
            "tokens": self._tokens() if is_from_this_machine(request) else [],
        }
        return Response(orjson.dumps(config), media_type="application/json", headers={"Cache-Control": "no-store"})

    def examples(self, request: Request) -> Response:
        """Return the examples. Raise `HTTPException` if there are none."""
        if self._schema is None:
            raise HTTPException(404)
        return self._examples.response(request)

    def schema(self, request: Request) -> Response:
        """Return the response to the introspection query. Raise `HTTPException` if callers may not introspect."""
        if self._schema is None:
            raise HTTPException(404)
        return self._introspection.response(request)


def is_visit(scope: Scope) -> bool:
    """Return whether a browser requests the page, and no operation."""
    if scope["method"] not in ("GET", "HEAD") or len(scope["query_string"]) > MAX_VISIT_BYTES:
        return False
    request = Request(scope)
    accepts_page = "text/html" in request.headers.get("accept", "")
    return accepts_page and not request.query_params.keys() & _OPERATION_PARAMETERS


def is_from_this_machine(request: Request) -> bool:
    """Return whether a client on this machine sent the request, and addressed it to this machine.

    The address of the peer is not sufficient: a proxy on this machine forwards requests of others, and any site can
    point its own name to 127.0.0.1 (DNS rebinding). The Host is not sufficient either: a remote client can send any
    value. A proxy is recognized by headers that no browser sends, and by HTTP/1.0, nginx's default. A browser names the
    page that sends the request: it must be of this origin.
    """
    headers = request.headers
    hosts = headers.getlist("host")
    return (
        not request.scope.get("http_version", "").startswith(("0", "1.0"))
        and len(hosts) == 1
        and _THIS_MACHINE.fullmatch(hosts[0]) is not None
        and all(site in _SAME_SITE for site in headers.getlist("sec-fetch-site"))
        and all(_is_own(origin, request.scope, hosts[0]) for origin in headers.getlist("origin"))
        and all(_is_own_page(page, request.scope, hosts[0]) for page in headers.getlist("referer"))
        and all(_CLIENT_HEADERS.fullmatch(name) for name in headers)
        and request.client is not None
        and _is_loopback(request.client.host)
    )


def _is_own(origin: str, scope: Scope, host: str) -> bool:
    """Return whether the origin is that of this host."""
    page = canonical_origin(origin)
    return page is not None and page == canonical_origin(f"{scope.get('scheme', 'http')}://{host}")


def _is_own_page(referer: str, scope: Scope, host: str) -> bool:
    """Return whether the page that a Referer names is of this host."""
    scheme, _, rest = referer.partition("://")
    return _is_own(f"{scheme}://{rest.partition('/')[0]}", scope, host)


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def assets() -> Assets:
    """Return the application that serves the built files. They never change: their names contain their hashes."""
    files = Assets(directory=ROOT / "dist" / "assets", check_dir=False)
    files.config_checked = True  # the page that is not built is reported by `Config.page`
    return files
