"""Records of DynamoDB Streams as changes of items."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, Literal, TypeVar

from datastore.dynamodb.codec import Item, decode_item, encode_item
from datastore.dynamodb.records import logged_keys
from datastore.model.log_redaction import redact_emails

Record = TypeVar("Record")

TTL_PRINCIPAL = "dynamodb.amazonaws.com"

SEQUENCE_DIGITS = 40  # the maximum length of a sequence number in DynamoDB

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one item."""

    table: str
    kind: Literal["INSERT", "MODIFY", "REMOVE"]
    keys: Item
    old: Item | None
    new: Item | None
    #: The sequence number in the shard.
    sequence: str
    #: DynamoDB's time of the change, with a resolution of about a second.
    time: datetime
    #: Whether TTL deleted the item.
    by_ttl: bool


def position_of(sequence: str) -> str:
    """Return a sequence number padded so that text order is numeric order."""
    return sequence.zfill(SEQUENCE_DIGITS)


class ChangeParser(Generic[Record]):
    """A parser of the changed items of a table, which parses a change once for all its subscribers.

    They receive a change one after another.
    """

    def __init__(self, parse: Callable[[Item], Record]) -> None:
        self._parse = parse
        self._latest: tuple[Change, Record] | None = None

    def parse(self, change: Change) -> Record | None:
        """Return the item after the change; None if it was removed. Raises the errors of `parse`."""
        if change.new is None:
            return None
        if self._latest is None or self._latest[0] is not change:
            self._latest = change, self._parse(change.new)
        return self._latest[1]


def decode_change(table: str, record: dict[str, Any]) -> Change:
    """Return the change of a record. Raises `KeyError`, `TypeError` or `ValueError` for a malformed record."""
    body = record["dynamodb"]
    return Change(
        table=table,
        kind=record["eventName"],
        keys=decode_item(body["Keys"]),
        old=decode_item(body["OldImage"]) if "OldImage" in body else None,
        new=decode_item(body["NewImage"]) if "NewImage" in body else None,
        sequence=body["SequenceNumber"],
        time=datetime.fromtimestamp(body["ApproximateCreationDateTime"], UTC),
        by_ttl="userIdentity" in record and _principal(record) == TTL_PRINCIPAL,
    )


def encode_change(change: Change) -> dict[str, Any]:
    """Return the record that `decode_change` decodes to this change."""
    body: dict[str, Any] = {
        "Keys": encode_item(change.keys),
        "SequenceNumber": change.sequence,
        "ApproximateCreationDateTime": change.time.timestamp(),
    }
    images = {"OldImage": change.old, "NewImage": change.new}
    body |= {name: encode_item(image) for name, image in images.items() if image is not None}
    record = {"eventName": change.kind, "dynamodb": body}
    return record | {"userIdentity": {"PrincipalId": TTL_PRINCIPAL}} if change.by_ttl else record


def log_unreadable(prefix: str, change: Change, problem: Exception) -> None:
    """Log the keys of a change that cannot be read, and the reason. `prefix` is that of the tables' names."""
    described = redact_emails(repr(problem)), logged_keys(change.keys)
    logger.error("A change of %s is damaged: %s in %r", prefix + change.table, *described)


def _principal(record: dict[str, Any]) -> str | None:
    # The API names it PrincipalId. Lambda's events, and engines that copy them, name it principalId.
    identity = record.get("userIdentity") or {}
    return identity.get("PrincipalId") or identity.get("principalId")
