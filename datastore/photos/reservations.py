"""Upload reservations: records, the keys of their files, and the claims of their upload tokens.

The claims state the reservation that a file is for, and the caller who pays for the upload. A token outlives its
reservation, so the reservation is read when the upload begins.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from operator import not_
from typing import Any

from msgspec.structs import replace

from datastore.dynamodb.records import record
from datastore.errors import BadUserInput, NotFound
from datastore.items import attributes as stored
from datastore.items.forms import Moment, Prose
from datastore.items.stored_item import StoredItem
from datastore.keyspace.photos import uploads as keys
from datastore.model.timestamps import FIRST_YEAR, from_iso, from_seconds, iso, to_seconds
from datastore.objects import INCOMING
from datastore.photos.image_types import PictureType
from datastore.photos.metadata import Facts
from datastore.session.store import Store

# The length of the hash at the end of the files' names, which covers the reservation and the files.
DIGITS = 16
# The maximum by which the clock of a client or of a camera may be ahead of the gateway's.
MAX_CLOCK_SKEW = timedelta(minutes=5)
# The names of the claims. Tokens of earlier releases have none of them.
NONCE, USER, ROLE = "nonce", "user", "role"


def _is_not_false(value: Any) -> bool:
    return value is not False


class Reservation(StoredItem, key=keys.upload):
    """A reservation for a photo that is not uploaded yet, with the attributes of the photo."""

    entity_type = stored.constant("entityType", keys.TYPE)
    image_id: str = stored.part("imageId")
    email: str = stored.text("email")
    content_type: PictureType = stored.choice("contentType", PictureType)
    description: str | None = stored.text("description", missing=None, form=Prose(1000))
    tags: tuple[str, ...] = stored.texts("tags", missing=())
    taken_at: datetime = stored.moment("takenAt", form=Moment())
    created_at: datetime = stored.moment("createdAt")
    expires_at: datetime = stored.seconds("expires")
    #: A unique text. It distinguishes two reservations of one id in the names of their files, so that a late deletion
    #: of the files of one deletes none of the other's, even of the same picture.
    nonce: str = stored.text("nonce", stored.if_null(""), missing="", omit=not_)
    camera: str | None = stored.text("camera", default=None, form=Prose(100))
    #: The client stated `taken_at`. Otherwise the time in the picture's metadata takes precedence.
    has_stated_time: bool = stored.flag("statesWhen", _is_not_false, default=True, omit=bool)


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


def check_past(field: str, moment: datetime, now: datetime) -> datetime:
    """Return the moment. Raises `BadUserInput` if it is in the future by more than the allowed clock skew."""
    if moment > now + MAX_CLOCK_SKEW:
        minutes = int(MAX_CLOCK_SKEW.total_seconds() // 60)
        raise BadUserInput(f"`{field}` must not lie more than {minutes} minutes in the future.", field=field)
    return moment


def taken_at(reservation: Reservation, facts: Facts, now: datetime) -> datetime:
    """Return the capture time of a photo: the client's value, else that of the metadata, else the reservation's time.

    A value of the metadata is ignored if it is in the future or in a year before `FIRST_YEAR`, which clients may not
    state either.
    """
    stated = facts.taken_at
    if reservation.has_stated_time or stated is None or stated > now + MAX_CLOCK_SKEW or stated.year < FIRST_YEAR:
        return reservation.taken_at
    return stated


def claims(reservation: Reservation) -> dict[str, str]:
    """Return the claims that bind a token to its reservation. A later reservation of the same id has another nonce."""
    return {NONCE: reservation.nonce}


def uploader_claims(user_id: str, role: str) -> dict[str, str]:
    """Return the claims that name the caller whose budget pays for the upload."""
    return {USER: user_id, ROLE: role}


def uploader_of(token: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the user id and role that `uploader_claims` put into a token, or None for a token without them."""
    user_id, role = token.get(USER), token.get(ROLE)
    return (user_id, role) if isinstance(user_id, str) and isinstance(role, str) else None


async def reservation_for(token: Mapping[str, Any], store: Store, now: datetime) -> Reservation:
    """Return the reservation of a token, by a strongly consistent read.

    Raises `NotFound` if the upload was cancelled or completed, or the reservation has expired.
    """
    image_id = str(token["key"]).removeprefix(INCOMING).partition("/")[0]
    reservation = record(Reservation.decoder, await store.get(keys.RECEIVE_FILE, keys.upload(image_id)))
    if reservation is None or reservation.expires_at <= now or token.get(NONCE, reservation.nonce) != reservation.nonce:
        raise no_reservation()
    return reservation


def no_reservation() -> NotFound:
    """Return the error for an upload whose reservation no longer exists."""
    return NotFound("The upload was cancelled or completed, or has expired: createPhoto reserves another.")
