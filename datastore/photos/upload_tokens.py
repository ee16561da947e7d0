"""Files that arrive at the gateway: which reservation they are for, and who pays for them.

The gateway signs what it is to know of an upload into the upload's token. A token outlives its reservation, so the
reservation is read when the upload begins.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from datastore.errors import NotFound
from datastore.keyspace.photos import uploads as keys
from datastore.objects import INCOMING
from datastore.photos.reservations import Reservation, reservation_from
from datastore.records import record
from datastore.store import Store

# The names of the claims. Tokens of versions before have none of them.
NONCE, USER, ROLE = "nonce", "user", "role"


def claims(reservation: Reservation) -> dict[str, str]:
    """What a token says of the reservation that it was made for: one that takes the same id later is another."""
    return {NONCE: reservation.nonce}


def uploader_claims(user_id: str, role: str) -> dict[str, str]:
    """What a token says of the caller whose budget the upload is charged to."""
    return {USER: user_id, ROLE: role}


def uploader_of(token: Mapping[str, Any]) -> tuple[str, str] | None:
    """The user id and the role that `uploader_claims` put into a token; None where it has none."""
    user_id, role = token.get(USER), token.get(ROLE)
    return (user_id, role) if isinstance(user_id, str) and isinstance(role, str) else None


async def reservation_for(token: Mapping[str, Any], store: Store, now: datetime) -> Reservation:
    """The reservation that a token was made for, by a strongly consistent read.

    Raises `NotFound` when it was cancelled or completed, or has expired.
    """
    image_id = str(token["key"]).removeprefix(INCOMING).partition("/")[0]
    reservation = record(reservation_from, await store.get(keys.RECEIVE_FILE, keys.upload(image_id)))
    if reservation is None or reservation.expires_at <= now or token.get(NONCE, reservation.nonce) != reservation.nonce:
        raise no_reservation()
    return reservation


def no_reservation() -> NotFound:
    """The error about an upload whose reservation is gone."""
    return NotFound("The upload was cancelled or completed, or has expired: createPhoto reserves another.")
