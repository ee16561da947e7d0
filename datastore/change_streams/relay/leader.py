"""Holds a table for as long as its lease is this process's, and relays it."""

import asyncio
import logging
import random
import time
from collections.abc import Callable
from contextlib import suppress

from datastore.change_streams.relay.publisher import Page, ReadPages, RelayPublisher
from datastore.change_streams.relay.redis_connection import (
    BusRefused,
    BusUnavailable,
    RelayConnection,
    RelayLeaseLost,
    RelayState,
    UnexpectedPosition,
)
from datastore.change_streams.shards.checkpoints import Reached, lacking
from datastore.dynamodb.client import RequestRefused
from datastore.errors import DomainError

# So long who could not read a table leaves it to others, more or less.
REFUSED_SECONDS = 1.0

logger = logging.getLogger(__name__)


class RelayLeader:
    """Of one table, by one `instance`. `refused` is why it could not be read when that was tried last.

    `away` hears that Redis is, `ended` that there is something to see to, `on_error` of each new reason to refuse.
    """

    def __init__(
        self,
        connection: RelayConnection,
        table: str,
        instance: str,
        read_pages: ReadPages,
        *,
        new_epoch: Callable[[], str],
        on_page: Callable[[Page], None],
        away: Callable[[BusUnavailable], None],
        ended: Callable[[], None],
        on_error: Callable[[str, Exception], None],
    ) -> None:
        self._connection = connection
        self._table = table
        self._instance = instance
        self._read_pages = read_pages
        self._new_epoch = new_epoch
        self._on_page = on_page
        self._away = away
        self._ended = ended
        self._on_error = on_error
        self._relay: RelayPublisher | None = None
        self._task: asyncio.Task[None] | None = None
        self._retry_at = float("-inf")
        self.refused: Exception | None = None

    @property
    def is_relaying(self) -> bool:
        return self._relay is not None and self._relay.is_attached

    async def claim(self) -> RelayState:
        """How the table stands: its lease renewed, or taken if it is free. Raises `BusUnavailable`."""
        relay = self._relay
        idle = None if relay is None else relay.idle()
        appended = None if relay is None else relay.appended()
        wanted = time.monotonic() >= self._retry_at
        state = await self._connection.claim(self._table, self._instance, wanted=wanted, idle=idle)
        if relay is None or relay.lease != state.lease:
            return state
        if appended is not None and (relay.epoch != state.epoch or lacking(state.positions, appended)):
            # Redis went back to an older copy: what it has not is appended again, from where the copy is.
            logger.info("What was relayed of %s is not noted any more.", self._table)
            await self.stop_relay()
        elif relay.reached is not None and relay.epoch == state.epoch:
            gone = state.positions.keys() - relay.reached.keys()
            if gone:
                await self._connection.forget(self._table, gone)
        return state

    async def run_relay(self, state: RelayState, known: Reached | None) -> None:
        """Relay while the lease is ours. `known`: where to begin when no order is there to go on with."""
        if self._relay is not None and (self._relay.lease != state.lease or self._task is None or self._task.done()):
            await self.stop_relay()
        if state.is_held_by(self._instance) and self._relay is None:
            self._relay = RelayPublisher(
                self._connection, self._table, state.lease, self._read_pages, self._new_epoch, self._on_page
            )
            self._task = asyncio.create_task(self._run(self._relay, state, known), name=f"relay of {self._table}")

    async def stop_relay(self) -> None:
        """Relay no more. The lease is left to lapse."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._relay = self._task = None

    async def release(self) -> None:
        """Relay no more, and let others take over at once."""
        lease = self._relay.lease if self._relay is not None else None
        await self.stop_relay()
        if lease is not None:
            await self._release_lease(lease)

    async def _run(self, relay: RelayPublisher, state: RelayState, known: Reached | None) -> None:
        try:
            await relay.run(state, known)
        except BusUnavailable as problem:
            if isinstance(problem, BusRefused):
                # Who renews the lease and cannot append keeps changes from all who follow.
                await self._release_lease(relay.lease)
            self._away(problem)
        except (RelayLeaseLost, UnexpectedPosition) as problem:
            # The next claim begins it anew, here or elsewhere.
            logger.info("The relay of %s has ended: %r", self._table, problem)
        except (DomainError, RequestRefused) as problem:
            await self._refuse(problem, relay.lease)
        finally:
            self._ended()

    async def _refuse(self, problem: Exception, lease: str) -> None:
        """What cannot be read here may be readable elsewhere."""
        if type(problem) is not type(self.refused):
            self._on_error(self._table, problem)
        self.refused = problem
        self._retry_at = time.monotonic() + random.uniform(0.5, 1.5) * REFUSED_SECONDS
        await self._release_lease(lease)

    async def _release_lease(self, lease: str) -> None:
        with suppress(BusUnavailable):  # it goes by itself then
            await self._connection.release(self._table, lease)
