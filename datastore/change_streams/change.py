"""Records of DynamoDB Streams as changes of items."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from datastore.dynamodb.codec import Item, decode_item, encode_item

TTL_PRINCIPAL = "dynamodb.amazonaws.com"


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one item. `time` is DynamoDB's, to about a second. `by_ttl`: TTL deleted the item."""

    table: str
    kind: Literal["INSERT", "MODIFY", "REMOVE"]
    keys: Item
    old: Item | None
    new: Item | None
    sequence: str
    time: datetime
    by_ttl: bool


def decode_change(table: str, record: dict[str, Any]) -> Change:
    body = record["dynamodb"]
    return Change(
        table=table,
        kind=record["eventName"],
        keys=decode_item(body["Keys"]),
        old=decode_item(body["OldImage"]) if "OldImage" in body else None,
        new=decode_item(body["NewImage"]) if "NewImage" in body else None,
        sequence=body["SequenceNumber"],
        time=datetime.fromtimestamp(body["ApproximateCreationDateTime"], UTC),
        by_ttl=_principal(record) == TTL_PRINCIPAL,
    )


def encode_change(change: Change) -> dict[str, Any]:
    """Return the record from which `decode_change` makes this change."""
    body: dict[str, Any] = {
        "Keys": encode_item(change.keys),
        "SequenceNumber": change.sequence,
        "ApproximateCreationDateTime": change.time.timestamp(),
    }
    images = {"OldImage": change.old, "NewImage": change.new}
    body |= {name: encode_item(image) for name, image in images.items() if image is not None}
    record = {"eventName": change.kind, "dynamodb": body}
    return record | {"userIdentity": {"PrincipalId": TTL_PRINCIPAL}} if change.by_ttl else record


def _principal(record: dict[str, Any]) -> str | None:
    # The API spells it PrincipalId; Lambda's events, and engines that copy them, principalId.
    identity = record.get("userIdentity") or {}
    return identity.get("PrincipalId") or identity.get("principalId")
