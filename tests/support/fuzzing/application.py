"""The real application, with a small schema and no store, served to rigs."""

import atexit
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import anyio.to_thread
from prometheus_client import CollectorRegistry

from datastore.database import StoreOptions
from datastore.objects.local import LocalObjects
from datastore.session.metering import Meter
from datastore.session.store import Store
from server.admission.settings import Capacity
from server.app import application
from server.settings import Settings
from server.wiring import ServerComponents, ServerDependencies
from tests.support.fuzzing.clockwork import Clockwork
from tests.support.fuzzing.rig import BUSY_SECONDS, FuzzedApplication
from tests.support.fuzzing.sockets import check_world, fresh_world
from tests.support.toy_sockets import NOW, SCHEMA, SocketContext, world

SECRET = "a secret for fuzzing, long enough to sign with"
ORIGIN = "https://page.example"


class Gateway:
    """A gateway without a store, which no example needs."""

    def __init__(self) -> None:
        folder = Path(tempfile.mkdtemp())
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        self.server = ServerComponents(
            Settings(
                secret=SECRET,
                allowed_origins=(ORIGIN,),
                # No example is refused for what others before it have spent.
                capacity=Capacity(budget_units=0, anonymous_budget_units=0, lag_seconds=0),
            ),
            StoreOptions(memory=True),
            LocalObjects(folder, SECRET.encode(), lambda: "http://here"),
            CollectorRegistry(),
            ServerDependencies(
                build_schema=lambda: SCHEMA,
                open_context=SocketContext,
                open_store=_no_store,
                open_session=_no_session,
                cost_models={},
                access_patterns=lambda: "",
                now=lambda: datetime.fromtimestamp(NOW, UTC),
                clock=world.clock,
                new_id=lambda: "an-id",
            ),
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        yield

    async def readiness(self, seconds: float) -> dict[str, Any]:
        return {"ready": True}


async def _run_here(func: Callable[..., Any], *args: Any, **_: Any) -> Any:
    """Do what Starlette has a thread do, whose end a loop without threads would not see."""
    return func(*args)


def _no_store(seconds: float, meter: Meter | None = None) -> Store:
    raise AssertionError("An example reached the store.")


def _no_session() -> Any:
    raise AssertionError("An example reached the network.")


@contextmanager
def _during() -> Iterator[None]:
    with fresh_world(), patch.object(anyio.to_thread, "run_sync", _run_here):
        yield


def serve_application(loop: Clockwork) -> FuzzedApplication:
    """Serve the whole application."""
    gateway = Gateway()
    return FuzzedApplication(
        app=application(gateway),
        connections=gateway.server.admission.connections,
        at_the_end=check_world,
        during=_during,
        streams=True,
        busy_seconds=BUSY_SECONDS + 17 * gateway.server.settings.deadline_seconds,
    )
