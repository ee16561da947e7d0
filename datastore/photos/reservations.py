"""A place that is taken by a photo that is not uploaded yet, and how it is kept."""

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

# Of the hash of a photo's reservation and files, which the files' names end with.
DIGITS = 16


@dataclass(frozen=True, slots=True)
class Reservation:
    """A place that is taken by a photo that is not uploaded yet, and what the photo will be.

    `nonce` is any text that comes once. It tells two reservations of the same id apart: in the names of their files, so
    that whoever comes late to remove those of the one takes none of the other's, though both are of the same picture.

    `states_when` tells whether the client stated `taken_at`. Where it did not, the picture's own metadata counts.
    """

    image_id: str
    email: str
    content_type: PictureType
    description: str | None
    tags: tuple[str, ...]
    taken_at: datetime
    created_at: datetime
    expires_at: datetime
    nonce: str
    camera: str | None = None
    states_when: bool = True


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
        states_when=item.get("statesWhen") is not False,
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
        "statesWhen": None if reservation.states_when else False,
    }
    return {name: value for name, value in item.items() if value is not None}


def as_kept(reservation: Reservation) -> Reservation:
    """A reservation as it will be read again: its moments are kept less exactly than a clock tells them."""
    return replace(
        reservation,
        taken_at=from_iso(iso(reservation.taken_at)),
        created_at=from_iso(iso(reservation.created_at)),
        expires_at=from_seconds(to_seconds(reservation.expires_at)),
    )


def file_keys(reservation: Reservation, original: bytes, thumbnail: bytes) -> tuple[str, str]:
    """Where the original and the thumbnail of a photo are kept."""
    digest = sha256(reservation.nonce.encode())
    for content in (original, thumbnail):
        digest.update(content)
    name = f"{reservation.image_id}-{digest.hexdigest()[:DIGITS]}"
    return f"originals/{name}.{reservation.content_type.ending}", f"thumbnails/{name}.jpg"
