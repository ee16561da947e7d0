"""The claims of upload tokens: the reservation that a file is for, and the caller who pays for the upload.

A token outlives its reservation, so the reservation is read when the upload begins.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from datastore.dynamodb.records import record
from datastore.errors import NotFound
from datastore.keyspace.photos import uploads as keys
from datastore.objects import INCOMING
from datastore.photos.reservations import Reservation, reservation_from
from datastore.session.store import Store

# The names of the claims. Tokens of earlier releases have none of them.
NONCE, USER, ROLE = "nonce", "user", "role"


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
    reservation = record(reservation_from, await store.get(keys.RECEIVE_FILE, keys.upload(image_id)))
    if reservation is None or reservation.expires_at <= now or token.get(NONCE, reservation.nonce) != reservation.nonce:
        raise no_reservation()
    return reservation


def no_reservation() -> NotFound:
    """Return the error for an upload whose reservation no longer exists."""
    return NotFound("The upload was cancelled or completed, or has expired: createPhoto reserves another.")
