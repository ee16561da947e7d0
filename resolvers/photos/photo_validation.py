"""What one may say about a photo, and the ids that clients bring along."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial

from datastore.errors import BadUserInput
from datastore.model.identifiers import lower_word
from datastore.model.ids import uuid7_moment
from resolvers.shared import validation as validate

LONGEST_DESCRIPTION = 1000
LONGEST_CAMERA = 100
LONGEST_TAG, MOST_TAGS = 50, 20
# A client's clock may be ahead of ours, and it may send again what it could not, but nothing shall stay the last for
# long.
MOST_AHEAD, MOST_BEHIND = timedelta(minutes=5), timedelta(days=1)

description = partial(validate.prose, longest=LONGEST_DESCRIPTION)
camera = partial(validate.prose, longest=LONGEST_CAMERA)


def tags(field: str, values: Sequence[str]) -> list[str]:
    """The tags in lower case, each once, in their order. Raises `BadUserInput` for too many, or one out of bounds."""
    if len(values) > MOST_TAGS:
        raise BadUserInput(f"`{field}` may hold at most {MOST_TAGS}, not {len(values)}.", field=field)
    return list(dict.fromkeys(_tag(f"{field}[{at}]", value) for at, value in enumerate(values)))


def _tag(field: str, value: str) -> str:
    validate.line(field, value, LONGEST_TAG)
    name = lower_word(value.strip())
    if name is None:
        raise BadUserInput(
            f"`{field}` must not hold characters that turn into ASCII letters in lower case.", field=field
        )
    # Some letters are longer in lower case.
    return validate.line(field, name, LONGEST_TAG)


def own_id(field: str, value: str) -> str:
    """An id that a client made. Raises `BadUserInput` unless it is a UUID of version 7: ids sort by time."""
    if uuid7_moment(value) is None:
        raise BadUserInput(f"`{field}` must be a UUID of version 7, in lower case and with hyphens.", field=field)
    return value


def recent_id(field: str, value: str, now: datetime) -> str:
    """The same of what is made now. Raises `BadUserInput` for an id of another time."""
    moment = uuid7_moment(own_id(field, value))
    if moment is None or not now - MOST_BEHIND <= moment <= now + MOST_AHEAD:
        limits = "at most a day ago and at most five minutes ahead"
        raise BadUserInput(f"`{field}` must have a time {limits}.", field=field)
    return value
