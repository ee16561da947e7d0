"""The GraphiQL page: its built files, and its configuration with examples and, in a demo, tokens."""

import ipaddress
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from server.security.origins import canonical_origin

ROOT = Path(__file__).resolve().parents[2] / "web"
TITLE = "DynamoDB GraphQL gateway"
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
# A line such as `# QUAKE-2 …` begins an example; `# tab`, `# as admin`, `# variables {…}` and `# find {…}` are its
# attributes. Comments of the query itself are indented.
_BEGINNING = re.compile(r"^(?=# [A-Z])", re.M)
MAX_PATH_CHARACTERS = 256
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
    #: A query for values that change daily: the variables are the fields of those names in the first object of its
    #: response that has all of them.
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
    return [example for file in files for example in _read(file.stem.replace("-", " ").capitalize(), file.read_text())]


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
    """The page and its configuration.

    `tokens` returns new demo tokens at each call. `url` is the prefix of the gateway's own URLs (signed URLs of files),
    by which the page recognizes them, whatever host name it was opened with. `bucket` returns the origin of the bucket
    with the photos, if there is one. Without `shows_examples` there are no examples: they reveal the schema.
    """

    def __init__(
        self,
        tokens: Callable[[], list[dict[str, str]]],
        url: str = "",
        *,
        bucket: Callable[[], str | None] = lambda: None,
        shows_examples: bool = True,
    ) -> None:
        self._bucket = bucket
        self._tokens = tokens
        self._url = url
        self._shows_examples = shows_examples

    @cached_property
    def _examples(self) -> list[dict[str, Any]]:
        return [example.as_json() for example in examples()]

    def page(self) -> Response:
        """Return the page. Except for photos it loads nothing from other origins."""
        index = ROOT / "dist" / "index.html"
        if not index.exists():
            return PlainTextResponse("The GraphiQL page is not built: run `make setup`.\n", status_code=503)
        bucket = self._bucket()
        policy = POLICY.format(bucket=f" {bucket}" if bucket else "")
        return FileResponse(index, media_type="text/html", headers=HEADERS | {"Content-Security-Policy": policy})

    def response(self, request: Request) -> Response:
        """Return the configuration; with demo tokens only if the request comes from this machine."""
        tokens = self._tokens() if is_from_this_machine(request) else []
        config = {"title": TITLE, "endpoint": "/graphql", "url": self._url, "tokens": tokens}
        config["examples"] = self._examples if self._shows_examples else []
        return Response(orjson.dumps(config), media_type="application/json", headers={"Cache-Control": "no-store"})


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


class _Assets(StaticFiles):
    def get_path(self, scope: Scope) -> str:
        """Return the path of a file. Raise `HTTPException` if it is long: the lookup takes time for each segment."""
        if len(scope["path"]) > MAX_PATH_CHARACTERS:
            raise HTTPException(404)
        return super().get_path(scope)

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        return response


def assets() -> StaticFiles:
    """Return the application that serves the built files. They never change: their names contain their hashes."""
    return _Assets(directory=ROOT / "dist" / "assets", check_dir=False)
