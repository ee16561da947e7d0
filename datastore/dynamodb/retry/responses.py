"""The content of responses to calls, and what a response says about the store."""

import zlib
from collections.abc import Callable
from typing import Any

import orjson

from datastore.dynamodb.calls import ITEM_WRITES, Call
from datastore.dynamodb.http1 import HttpResponse
from datastore.dynamodb.retry.classify import RetryableFailure, SignatureRefused, error_of_response, is_missing_table
from datastore.dynamodb.retry.disk_state import DiskState
from datastore.dynamodb.store_clock import StoreClock
from datastore.errors import Unavailable

DAMAGED_RESPONSE = "The store's responses arrive damaged."
TABLE_MISSING = "The store is not ready: it lacks a table."


class ResponseReader:
    """The reader of a client's responses. With `recreates_tables` a missing table will be created soon."""

    def __init__(self, *, recreates_tables: bool) -> None:
        #: The store's time, by the dates of its responses.
        self.store_clock = StoreClock()
        #: Whether the store's disk is full, by the response to the last write.
        self.disk = DiskState()
        self._latest_date: bytes | None = None
        self._recreates_tables = recreates_tables

    def content(self, call: Call, response: HttpResponse, clock: Callable[[], float]) -> dict[str, Any]:
        """Return the content of a response to a call.

        Raises:
            RetryableFailure: The response is damaged, or the call may succeed later.
            DomainError: DynamoDB refused the request, or could not process it.
        """
        content = response.content
        if response.date != self._latest_date:  # the date has whole seconds
            self._latest_date = response.date
            self.store_clock.observe(response.date)
        if response.checksum is not None and response.checksum != b"%d" % zlib.crc32(content):
            raise RetryableFailure(Unavailable(DAMAGED_RESPONSE))
        if response.status == 200:
            try:
                parsed: dict[str, Any] = orjson.loads(content)
            except orjson.JSONDecodeError as problem:
                raise RetryableFailure(Unavailable(DAMAGED_RESPONSE)) from problem
            if self.disk.is_full and call.operation in ITEM_WRITES:
                self.disk.written()
            return parsed
        error = error_of_response(response.status, content)
        if isinstance(error, Unavailable):
            self.disk.refused(content, clock())
        if isinstance(error, SignatureRefused):
            error.date = response.date
        if self._recreates_tables and is_missing_table(call.operation, error):
            raise RetryableFailure(Unavailable(TABLE_MISSING), ambiguous=False, cost=0) from error
        raise error
