"""The GraphiQL page: built files, and what it is to offer (examples, and tokens while it is a demo)."""

import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.staticfiles import StaticFiles

ROOT = Path(__file__).resolve().parent.parent / "web"
TITLE = "DynamoDB GraphQL gateway"
# Monaco writes style elements and inlines its fonts; scripts, workers and connections are our own origin's only.
POLICY = (
    "default-src 'self'; script-src 'self'; worker-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self' data:; connect-src 'self' ws: wss:; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
# A line such as `# QUAKE-2 …` begins an example; `# tab`, `# as admin` and `# variables {…}` say more of it. Comments
# of the query itself are indented.
_BEGINNING = re.compile(r"^(?=# [A-Z])", re.M)


@dataclass(frozen=True, slots=True)
class Example:
    """An operation to try. `run_as` is the role it needs; `tab` ones are open from the start."""

    group: str
    name: str
    query: str
    variables: dict[str, Any] | None
    run_as: str | None
    tab: bool

    def told(self) -> dict[str, Any]:
        """As the page reads it."""
        told = asdict(self)
        return told | {"as": told.pop("run_as")}


def examples() -> list[Example]:
    """The operations in `web/examples`, a file for each system."""
    files = sorted((ROOT / "examples").glob("*.graphql"))
    return [example for file in files for example in _read(file.stem.capitalize(), file.read_text())]


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
            run_as=said.get("as"),
            tab="tab" in said,
        )


def page() -> Response:
    """The page itself; it loads nothing from anywhere else."""
    index = ROOT / "dist" / "index.html"
    if not index.exists():
        return PlainTextResponse("The GraphiQL page is not built: run `make setup`.\n", status_code=503)
    return FileResponse(index, media_type="text/html", headers=HEADERS)


class Config:
    """What the page asks for at its start. `tokens` makes fresh demo tokens at each call."""

    def __init__(self, tokens: Callable[[], list[dict[str, str]]]) -> None:
        self._tokens = tokens
        self._examples = [example.told() for example in examples()]

    def response(self) -> Response:
        config = {"title": TITLE, "endpoint": "/graphql", "tokens": self._tokens(), "examples": self._examples}
        return Response(orjson.dumps(config), media_type="application/json", headers={"Cache-Control": "no-store"})


def assets() -> StaticFiles:
    """Built files; their names hold their hashes."""
    return StaticFiles(directory=ROOT / "dist" / "assets", check_dir=False)
