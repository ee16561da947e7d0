"""Upload reservations: records, and the keys of their files."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from typing import Any

from datastore.dynamodb.codec import Item
from datastore.keyspace.photos import uploads as keys
from datastore.model.composite_keys import Key
from datastore.model.timestamps import from_iso, from_seconds, iso, to_seconds
from datastore.photos.image_types import PictureType

# The length of the hash at the end of the files' names, which covers the reservation and the files.
DIGITS = 16


@dataclass(frozen=True, slots=True)
class Reservation:
    """A reservation for a photo that is not uploaded yet, with the attributes of the photo."""

    image_id: str
    email: str
    content_type: PictureType
    description: str | None
    tags: tuple[str, ...]
    taken_at: datetime
    created_at: datetime
    expires_at: datetime
    #: A unique text. It distinguishes two reservations of one id in the names of their files, so that a late deletion
    #: of the files of one deletes none of the other's, even of the same picture.
    nonce: str
    camera: str | None = None
    #: The client stated `taken_at`. Otherwise the time in the picture's metadata takes precedence.
    has_stated_time: bool = True


def reservation_from(item: Mapping[str, Any]) -> Reservation:
    return Reservation(
        image_id=keys.upload_parts(Key(item["PK"], item["SK"])),
        email=item["email"],
        content_type=PictureType(item["contentType"]),
        description=item.get("description"),
        tags=tuple(item.get("tags", ())),
        taken_at=from_iso(item["takenAt"]),
        created_at=from_iso(item["createdAt"]),
        expires_at=from_seconds(item["expires"]),
        nonce=item.get("nonce") or "",
        camera=item.get("camera"),
        has_stated_time=item.get("statesWhen") is not False,
    )


def reservation_item(reservation: Reservation) -> Item:
    key = keys.upload(reservation.image_id)
    item = {
        "PK": key.partition,
        "SK": key.sort,
        "entityType": keys.TYPE,
        "email": reservation.email,
        "imageId": reservation.image_id,
        "contentType": reservation.content_type.value,
        "description": reservation.description,
        "tags": list(reservation.tags),
        "takenAt": iso(reservation.taken_at),
        "createdAt": iso(reservation.created_at),
        "expires": to_seconds(reservation.expires_at),
        "nonce": reservation.nonce or None,
        "camera": reservation.camera,
        "statesWhen": None if reservation.has_stated_time else False,
    }
    return {name: value for name, value in item.items() if value is not None}


def as_stored(reservation: Reservation) -> Reservation:
    """Return a reservation with the precision of times with which it is stored."""
    return replace(
        reservation,
        taken_at=from_iso(iso(reservation.taken_at)),
        created_at=from_iso(iso(reservation.created_at)),
        expires_at=from_seconds(to_seconds(reservation.expires_at)),
    )


def file_keys(reservation: Reservation, original: bytes, thumbnail: bytes) -> tuple[str, str]:
    """Return the keys under which the original and the thumbnail of a photo are stored."""
    digest = sha256(reservation.nonce.encode())
    for content in (original, thumbnail):
        digest.update(content)
    name = f"{reservation.image_id}-{digest.hexdigest()[:DIGITS]}"
    return f"originals/{name}.{reservation.content_type.extension}", f"thumbnails/{name}.jpg"
