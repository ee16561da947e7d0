"""Requests to DynamoDB as JSON, made ready before they are sent: what is written once need not be read again."""

from collections.abc import Mapping
from typing import Any

import orjson


class PreparedRequest:
    """A request as it goes over the wire: `body` is its JSON, `tables` (full names) and `index` are what it is about.

    `payload` is the same as parsed JSON, for those who must look into it, and read when it is asked for.
    """

    __slots__ = ("_payload", "body", "index", "tables")

    def __init__(self, body: bytes, tables: tuple[str, ...], index: str | None = None) -> None:
        self.body = body
        self.tables = tables
        self.index = index
        self._payload: Mapping[str, Any] | None = None

    @property
    def payload(self) -> Mapping[str, Any]:
        if self._payload is None:
            self._payload = orjson.loads(self.body)
        return self._payload

    @classmethod
    def of(cls, payload: Mapping[str, Any]) -> "PreparedRequest":
        """Raises `TypeError` for what JSON does not hold, such as half a surrogate pair."""
        prepared = cls(orjson.dumps(payload), _tables(payload), payload.get("IndexName"))
        prepared._payload = payload
        return prepared


def _tables(payload: Mapping[str, Any]) -> tuple[str, ...]:
    if "TableName" in payload:
        return (payload["TableName"],)
    if "RequestItems" in payload:
        return tuple(payload["RequestItems"])
    actions = payload.get("TransactItems", ())
    return tuple(dict.fromkeys(body["TableName"] for action in actions for body in action.values()))
