"""Replaying dead letters: each through the handler that could not handle it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from datastore.change_streams.dead_letters import DeadLetter, DeadLetters, letter_of
from datastore.change_streams.shards.stream_reader import decode_change
from datastore.keyspace.feeds.pipeline import CONSUMER_TABLE
from datastore.session.store import Store
from pipelines.consumer.batches import DECODING
from pipelines.consumer.failures import is_outage
from pipelines.consumer.handlers import Handler


class NotReplayable(Exception):
    """The letter cannot be replayed; the message says why."""


class Redrive:
    """Replays letters. What a handler counts it counts once: a change keeps the sequence its effects are named by."""

    def __init__(
        self, handlers: Sequence[Handler], open_store: Callable[[], Store], now: Callable[[], datetime]
    ) -> None:
        self._handlers = {handler.name: handler for handler in handlers}
        self._open_store = open_store
        self._now = now

    async def replay(self, letter: DeadLetter) -> DeadLetter | None:
        """None when the letter was handled, and is forgotten; else the letter as it is kept now, with its new error.

        Raises the store's outages; the letter stays as it was then.
        """
        try:
            await self._handle(letter)
        except Exception as problem:
            if is_outage(problem):
                raise
            return await self._kept(letter, problem)
        await DeadLetters(self._open_store(), CONSUMER_TABLE).forget(letter)
        return None

    async def _handle(self, letter: DeadLetter) -> None:
        if not letter.whole:
            raise NotReplayable("The record was too big to be kept with its images.")
        change = decode_change(letter.table, dict(letter.record))
        for handler in self._of(letter):
            await handler.handle([change])

    def _of(self, letter: DeadLetter) -> Sequence[Handler]:
        """Its handler; all, for a record that could not be decoded for any."""
        if letter.handler == DECODING:
            return list(self._handlers.values())
        handler = self._handlers.get(letter.handler)
        if handler is None:
            raise NotReplayable(f"There is no handler {letter.handler}.")
        return [handler]

    async def _kept(self, letter: DeadLetter, problem: Exception) -> DeadLetter:
        again = letter_of(letter.table, letter.handler, letter.record, problem, letter.attempts + 1, self._now())
        kept = replace(letter, error_type=again.error_type, error=again.error, attempts=again.attempts)
        await DeadLetters(self._open_store(), CONSUMER_TABLE).bury(kept)
        return kept
