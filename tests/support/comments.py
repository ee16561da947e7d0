"""Ids of comments."""

from datetime import timedelta

from datastore.model.ids import uuid7
from tests.support.served import NOON


def an_id(number: int = 0, **ahead: float) -> str:
    """Return a UUID of version 7 of a moment near noon, as a client makes it."""
    return uuid7(NOON + timedelta(**ahead), str(number))
