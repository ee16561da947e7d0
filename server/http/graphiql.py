"""The GraphiQL page: built files, and what it is to offer (examples, and tokens while it is a demo)."""

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
# Monaco writes style elements and inlines its fonts; scripts, workers and connections (by CSP 3 WebSockets too) are our
# own origin's only. Where photos are kept in a bucket, its origin may be uploaded to and be shown pictures of.
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
# A line such as `# QUAKE-2 …` begins an example; `# tab`, `# as admin`, `# variables {…}` and `# find {…}` say more of
# it. Comments of the query itself are indented.
_BEGINNING = re.compile(r"^(?=# [A-Z])", re.M)
MOST_PATH_CHARACTERS = 256
_THIS_MACHINE = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d{1,5})?", re.I)
# What browsers and command-line clients send. A proxy adds one of a hundred other headers to what it passes on.
_CLIENT_HEADERS = re.compile(
    r"host|connection|user-agent|accept(-(encoding|language|charset))?|sec-(fetch|ch|gpc)\b.*|cookie|dnt|te|priority"
    r"|upgrade-insecure-requests|cache-control|pragma|referer|origin|if-(none-match|modified-since)|content-(type|length)"
    r"|authorization|keep-alive|save-data|purpose|x-requested-with"
)
_FROM_HERE = ("same-origin", "none")


@dataclass(frozen=True, slots=True)
class Example:
    """An operation to try. `run_as` is the role it needs; `tab` ones are open from the start.

    `find` is a query for what changes from day to day: the first object in its answer that has fields called as the
    variables holds their values. Where there is none, `variables` say in words what to take.
    """

    group: str
    name: str
    query: str
    variables: dict[str, Any] | None
    find: str | None
    run_as: str | None
    tab: bool

    def told(self) -> dict[str, Any]:
        """As the page reads it."""
        told = asdict(self)
        return told | {"as": told.pop("run_as")}


def examples() -> list[Example]:
    """The operations in `web/examples`, a file for each system or part of one (`matches-reference`)."""
    files = sorted((ROOT / "examples").glob("*.graphql"))
    return [example for file in files for example in _read(file.stem.replace("-", " ").capitalize(), file.read_text())]


def _read(group: str, text: str) -> Iterator[Example]:
    for block in filter(None, _BEGINNING.split(text)):
        lines = block.strip().splitlines()
        name, *marks = [line.removeprefix("# ") for line in lines if line.startswith("# ")]
        said = dict(mark.partition(" ")[::2] for mark in marks)
        yield Example(
            group=group,
            name=name,
            query="\n".join(line for line in lines if not line.startswith("# ")) + "\n",
            variables=orjson.loads(said["variables"]) if "variables" in said else None,
            find=said.get("find"),
            run_as=said.get("as"),
            tab="tab" in said,
        )


class Config:
    """The page, and what it asks for at its start. `tokens` makes fresh demo tokens at each call.

    `url` is how addresses of the gateway's own begin (signed ones of files): the page knows by it that they are here,
    by whatever name it was opened. `bucket` returns the origin that keeps the photos' files where that is another one.
    Without `shows_examples` it has none: they tell the whole schema.
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
        return [example.told() for example in examples()]

    def page(self) -> Response:
        """The page itself; but for photos it loads nothing from anywhere else."""
        index = ROOT / "dist" / "index.html"
        if not index.exists():
            return PlainTextResponse("The GraphiQL page is not built: run `make setup`.\n", status_code=503)
        bucket = self._bucket()
        policy = POLICY.format(bucket=f" {bucket}" if bucket else "")
        return FileResponse(index, media_type="text/html", headers=HEADERS | {"Content-Security-Policy": policy})

    def response(self, request: Request) -> Response:
        tokens = self._tokens() if is_from_this_machine(request) else []
        config = {"title": TITLE, "endpoint": "/graphql", "url": self._url, "tokens": tokens}
        config["examples"] = self._examples if self._shows_examples else []
        return Response(orjson.dumps(config), media_type="application/json", headers={"Cache-Control": "no-store"})


def is_from_this_machine(request: Request) -> bool:
    """Whether the request was made here, to an address that can only mean here.

    The peer alone does not tell: a proxy on this machine asks for others, and a page of any site may let its own name
    point to 127.0.0.1 (DNS rebinding). The Host alone does not either: whoever is elsewhere may write what they like.
    Proxies are known by headers that no browser sends, and by HTTP/1.0, which nginx speaks by default. A browser
    says which page asks: one of another origin, and one that was opened elsewhere, get nothing.
    """
    headers = request.headers
    hosts = headers.getlist("host")
    return (
        not request.scope.get("http_version", "").startswith(("0", "1.0"))
        and len(hosts) == 1
        and _THIS_MACHINE.fullmatch(hosts[0]) is not None
        and all(site in _FROM_HERE for site in headers.getlist("sec-fetch-site"))
        and all(_is_own(origin, request.scope, hosts[0]) for origin in headers.getlist("origin"))
        and all(_is_own_page(page, request.scope, hosts[0]) for page in headers.getlist("referer"))
        and all(_CLIENT_HEADERS.fullmatch(name) for name in headers)
        and request.client is not None
        and _is_loopback(request.client.host)
    )


def _is_own(origin: str, scope: Scope, host: str) -> bool:
    """Whether the origin is that of the page behind this host."""
    page = canonical_origin(origin)
    return page is not None and page == canonical_origin(f"{scope.get('scheme', 'http')}://{host}")


def _is_own_page(referer: str, scope: Scope, host: str) -> bool:
    """Return whether the page that a Referer names is behind this host."""
    scheme, _, rest = referer.partition("://")
    return _is_own(f"{scheme}://{rest.partition('/')[0]}", scope, host)


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


class _Assets(StaticFiles):
    def get_path(self, scope: Scope) -> str:
        """The path of a file. Raises `HTTPException` for one that is too long: each of its parts is looked up."""
        if len(scope["path"]) > MOST_PATH_CHARACTERS:
            raise HTTPException(404)
        return super().get_path(scope)

    def file_response(self, *given: Any, **named: Any) -> Response:
        response = super().file_response(*given, **named)
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        return response


def assets() -> StaticFiles:
    """Built files; their names hold their hashes."""
    return _Assets(directory=ROOT / "dist" / "assets", check_dir=False)
