"""Redrive of dead letters: the handler that failed handles each again."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from datastore.change_streams.change import decode_change
from datastore.change_streams.dead_letters import DeadLetter, DeadLetters, letter_of
from datastore.keyspace.feeds.pipeline import CONSUMER_TABLE
from datastore.session.store import Store
from pipelines.consumer.batches import DECODING
from pipelines.consumer.failures import is_outage
from pipelines.consumer.handlers import Handler


class NotReplayable(Exception):
    """The letter cannot be replayed, for the reason in the message."""


class Redrive:
    """The replay of dead letters. Effects are applied once, since their names contain the change's sequence number."""

    def __init__(
        self, handlers: Sequence[Handler], open_store: Callable[[], Store], now: Callable[[], datetime]
    ) -> None:
        self._handlers = {handler.name: handler for handler in handlers}
        self._open_store = open_store
        self._now = now

    async def replay(self, letter: DeadLetter) -> DeadLetter | None:
        """Handle a letter and delete it. Return None; after a failure, the letter as it is stored with its new error.

        Raises: an outage of the store. The letter then stays unchanged.
        """
        try:
            await self._handle(letter)
        except Exception as problem:
            if is_outage(problem):
                raise
            return await self._store_failure(letter, problem)
        await DeadLetters(self._open_store(), CONSUMER_TABLE).forget(letter)
        return None

    async def _handle(self, letter: DeadLetter) -> None:
        if not letter.whole:
            raise NotReplayable("The record was too large to be stored with its images.")
        change = decode_change(letter.table, dict(letter.record))
        for handler in self._handlers_of(letter):
            await handler.handle([change])

    def _handlers_of(self, letter: DeadLetter) -> Sequence[Handler]:
        """Return the letter's handler, or all of them for a record that could not be decoded."""
        if letter.handler == DECODING:
            return list(self._handlers.values())
        handler = self._handlers.get(letter.handler)
        if handler is None:
            raise NotReplayable(f"There is no handler {letter.handler}.")
        return [handler]

    async def _store_failure(self, letter: DeadLetter, problem: Exception) -> DeadLetter:
        failed = letter_of(letter.table, letter.handler, letter.record, problem, letter.attempts + 1, self._now())
        updated = replace(letter, error_type=failed.error_type, error=failed.error, attempts=failed.attempts)
        await DeadLetters(self._open_store(), CONSUMER_TABLE).bury(updated)
        return updated
