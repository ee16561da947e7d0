"""Records of DynamoDB Streams as changes of items."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from datastore.dynamodb.codec import Item, decode_item, encode_item

TTL_PRINCIPAL = "dynamodb.amazonaws.com"


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
        by_ttl=_principal(record) == TTL_PRINCIPAL,
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


def _principal(record: dict[str, Any]) -> str | None:
    # The API names it PrincipalId. Lambda's events, and engines that copy them, name it principalId.
    identity = record.get("userIdentity") or {}
    return identity.get("PrincipalId") or identity.get("principalId")
