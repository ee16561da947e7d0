"""The capture time of an uploaded picture, from its client or its metadata."""

from datetime import datetime, timedelta

from datastore.errors import BadUserInput
from datastore.model.timestamps import FIRST_YEAR
from datastore.photos.metadata import Facts
from datastore.photos.reservations import Reservation

# The maximum by which the clock of a client or of a camera may be ahead of the gateway's.
MAX_CLOCK_SKEW = timedelta(minutes=5)


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
