"""Steps and data of the tests of comments."""

from datetime import timedelta

from datastore.model.ids import uuid7
from tests.support.served import NOON


def an_id(number: int = 0, **ahead: float) -> str:
    """An id of one's own, of a moment near noon."""
    return uuid7(NOON + timedelta(**ahead), str(number))
