"""The leadership of a table: this process relays the table while it holds its lease."""

import asyncio
import logging
import random
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from datastore.change_streams.relay.commands import (
    BusRefused,
    BusUnavailable,
    RelayLeaseLost,
    RelayState,
    UnexpectedPosition,
)
from datastore.change_streams.relay.publisher import MakeReader, Page, RelayPublisher
from datastore.change_streams.shards.checkpoints import Reached, lacking
from datastore.dynamodb.client import RequestRefused
from datastore.errors import DomainError
from datastore.primitives.tasks import cancel

if TYPE_CHECKING:
    from datastore.change_streams.relay.bus import Bus

# The seconds, on average, for which a process that could not read a table does not claim it.
REFUSED_SECONDS = 1.0

logger = logging.getLogger(__name__)


class RelayLeader:
    """The leadership of one table by this process.

    `on_page` is called with each page that was relayed, `on_end` when the relay has ended, and `on_error` for each new
    reason why the table cannot be read.
    """

    def __init__(
        self,
        bus: "Bus",
        table: str,
        make: MakeReader,
        *,
        on_page: Callable[[Page], None],
        on_end: Callable[[], None],
        on_error: Callable[[str, Exception], None],
    ) -> None:
        self._bus = bus
        self._commands = bus.commands
        self._table = table
        self._full_name = bus.prefix + table
        self._make = make
        self._on_page = on_page
        self._on_end = on_end
        self._on_error = on_error
        self._relay: RelayPublisher | None = None
        self._task: asyncio.Task[None] | None = None
        self._retry_at = float("-inf")
        #: The error of the last attempt to read the table, if it failed.
        self.refused: Exception | None = None

    @property
    def is_relaying(self) -> bool:
        return self._relay is not None and self._relay.is_attached

    async def claim(self) -> RelayState:
        """Renew the lease, or claim it if it is free, and return the table's state. Raises `BusUnavailable`."""
        relay = self._relay
        idle = None if relay is None else relay.idle()
        appended = None if relay is None else relay.appended()
        may_claim = time.monotonic() >= self._retry_at
        state = await self._commands.claim(self._table, self._bus.instance, may_claim=may_claim, idle=idle)
        if relay is None or relay.lease != state.lease:
            return state
        if appended is not None and (relay.epoch != state.epoch or lacking(state.positions, appended)):
            # Redis was restored from an older copy: the relay starts again from the positions of the copy.
            logger.info("Redis has lost relayed changes of %s; they are relayed again.", self._full_name)
            await self.stop_relay()
        elif relay.reached is not None and relay.epoch == state.epoch:
            gone = state.positions.keys() - relay.reached.keys()
            if gone:
                await self._commands.forget(self._table, gone)
        return state

    async def run_relay(self, state: RelayState, known: Reached | None) -> None:
        """Relay if this process holds the lease, else stop relaying. Without an epoch to continue, start at `known`."""
        if self._relay is not None and (self._relay.lease != state.lease or self._task is None or self._task.done()):
            await self.stop_relay()
        if state.is_held_by(self._bus.instance) and self._relay is None:
            self._relay = RelayPublisher(self._commands, self._table, state.lease, self._make, self._on_page)
            self._task = asyncio.create_task(self._run(self._relay, state, known), name=f"relay of {self._table}")

    async def stop_relay(self) -> None:
        """Stop relaying, and let the lease expire."""
        await cancel(self._task)
        self._relay = self._task = None

    async def release(self) -> None:
        """Stop relaying, and release the lease, so that another process can claim it at once."""
        lease = self._relay.lease if self._relay is not None else None
        await self.stop_relay()
        if lease is not None:
            await self._release_lease(lease)

    async def _run(self, relay: RelayPublisher, state: RelayState, known: Reached | None) -> None:
        try:
            await relay.run(state, known)
        except BusUnavailable as problem:
            if isinstance(problem, BusRefused):
                # A leader that renews the lease but cannot append would withhold changes from all followers.
                await self._release_lease(relay.lease)
            self._bus.mark_unavailable(problem)
        except (RelayLeaseLost, UnexpectedPosition) as problem:
            # The next claim, here or in another process, starts the relay again.
            logger.info("The relay of %s has ended: %r", self._full_name, problem)
        except (DomainError, RequestRefused) as problem:
            await self._refuse(problem, relay.lease)
        finally:
            self._on_end()

    async def _refuse(self, problem: Exception, lease: str) -> None:
        """Release the lease, since another process may be able to read the table."""
        if type(problem) is not type(self.refused):
            self._on_error(self._table, problem)
        self.refused = problem
        self._retry_at = time.monotonic() + random.uniform(0.5, 1.5) * REFUSED_SECONDS
        await self._release_lease(lease)

    async def _release_lease(self, lease: str) -> None:
        with suppress(BusUnavailable):  # the lease expires by itself
            await self._commands.release(self._table, lease)
