"""The contract of the API: a page per system with its fields, subscriptions and types.

A new system adds a page. `make conventions` compares the pages with the declarations.
"""

import importlib
import json
import pkgutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager

import pytest
from aiohttp import web

from datastore.database import Database
from datastore.dynamodb.calls import Call
from datastore.keyspace import PATTERNS
from tests.support.contract.pages import Field, Followed, Page
from tests.support.served import Answer, Served

MODULES = [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
PATTERN_IDS = [pattern.id for pattern in PATTERNS]
# In the order of the access patterns: recorded ids depend on it, and new systems come last.
PAGES: list[Page] = sorted(
    [module.PAGE for module in MODULES if hasattr(module, "PAGE")],
    key=lambda page: PATTERN_IDS.index(page.fields[0].use[0]),
)
FIELDS: dict[str, Field] = {field.name: field for page in PAGES for field in page.fields}
SUBSCRIPTIONS: dict[str, Followed] = {followed.name: followed for page in PAGES for followed in page.subscriptions}
PAGE_OF: dict[str, Page] = {row.name: page for page in PAGES for row in page.rows}
ROWS: dict[str, Field | Followed] = {**FIELDS, **SUBSCRIPTIONS}
every_page = pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
every_page_with_mutations = pytest.mark.parametrize(
    "page", [page for page in PAGES if page.mutations], ids=[page.name for page in PAGES if page.mutations]
)
# No feed is served at this address.
NO_FEED = {"feed": "http://127.0.0.1:1/none"}


async def prepare_all(served: Served) -> dict[str, str]:
    """Store the items of every page. Return the texts for all operations."""
    prepared = dict(NO_FEED)
    for page in PAGES:
        prepared |= await page.prepare(served)
    return prepared


async def send(served: Served, field: Field, prepared: dict[str, str]) -> Answer:
    """Send the operation of a field as its page states it."""
    email = PAGE_OF[field.name].email
    return await served.ask(field.text(prepared), user=field.user, role=field.role, email=email)


def hints(where: str, declared: set[str], written: set[str], row: str) -> list[str]:
    """Return what to add or remove, and where, so that the written names are the declared ones."""
    return [
        *[f"{name}: add {row.format(name)} to {where}." for name in sorted(declared - written)],
        *[f"{name}: no declaration has this name. Remove it from {where}." for name in sorted(written - declared)],
    ]


def database_of(served: Served) -> Database:
    assert served.gateway.database is not None
    return served.gateway.database


@contextmanager
def every_call(served: Served) -> Iterator[list[Call]]:
    """Yield all calls of the process, including those that no request is charged with."""
    calls: list[Call] = []
    stop = database_of(served).client.add_call_listener(calls.append)
    yield calls
    stop()


@pytest.fixture
async def feed() -> AsyncIterator[str]:
    """Serve a feed of two events on this machine. Yield its URL."""
    events = [
        {
            "type": "Feature",
            "id": f"us{number}",
            "properties": {"mag": 4.5, "place": "Here", "time": 1_782_300_000_000 + number},
            "geometry": {"type": "Point", "coordinates": [1.5, 2.5, 3.5]},
        }
        for number in range(2)
    ]
    body = json.dumps({"type": "FeatureCollection", "metadata": {}, "features": events})
    app = web.Application()
    app.router.add_get("/feed.geojson", _answer(body))
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield "http://{}:{}/feed.geojson".format(*runner.addresses[0][:2])
    await runner.cleanup()


def _answer(body: str) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=body)

    return answer
