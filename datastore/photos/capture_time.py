"""When an uploaded picture was taken: what its client and its metadata state."""

from datetime import datetime, timedelta

from datastore.errors import BadUserInput
from datastore.moments import FIRST_YEAR
from datastore.photos.metadata import Facts
from datastore.photos.reservations import Reservation

# The clock of a client or of a camera may be so far ahead of the gateway's.
MOST_AHEAD = timedelta(minutes=5)


def check_past(field: str, moment: datetime, now: datetime) -> datetime:
    """Return the moment. Raises `BadUserInput` for one in the future, beyond what clocks may differ."""
    if moment > now + MOST_AHEAD:
        minutes = int(MOST_AHEAD.total_seconds() // 60)
        raise BadUserInput(f"`{field}` must not lie more than {minutes} minutes in the future.", field=field)
    return moment


def taken_at(reservation: Reservation, facts: Facts, now: datetime) -> datetime:
    """Return when a photo was taken: as the client stated, else as the metadata does, else when it was reserved.

    A moment that a client could not state does not count: one in the future, of a camera whose clock is wrong, or in a
    year before `FIRST_YEAR`.
    """
    stated = facts.taken_at
    if reservation.states_when or stated is None or stated > now + MOST_AHEAD or stated.year < FIRST_YEAR:
        return reservation.taken_at
    return stated
