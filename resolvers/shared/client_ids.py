"""Ids that clients choose for new objects, so that they can repeat a request safely."""

from datetime import timedelta

from datastore.errors import BadUserInput
from datastore.model.ids import uuid7, uuid7_moment
from resolvers.shared.context import Info

# A client's clock may be ahead, and a client may repeat a request later. Objects are listed by the time of their ids,
# so an id must not place a new object far from its time.
MAX_AHEAD, MAX_AGE = timedelta(minutes=5), timedelta(days=1)
CLIENT_ID = (
    "An id chosen by the client, which makes repeated requests safe: a UUID of version 7 in lower case, whose time is "
    "at most one day ago and at most five minutes ahead. By default the gateway creates one."
)


def new_object_id(info: Info, field: str, given: str | None) -> str:
    """Return the id that the client chose, or else a new id.

    Raises `BadUserInput` unless the client's id is a recent UUID of version 7.
    """
    context = info.context
    if given is None:
        return uuid7(context.requested_at, context.new_id(info))
    moment = uuid7_moment(uuid7_id(field, given))
    if moment is None or not context.requested_at - MAX_AGE <= moment <= context.requested_at + MAX_AHEAD:
        limits = "at most a day ago and at most five minutes ahead"
        raise BadUserInput(f"`{field}` must have a time {limits}.", field=field)
    return given


def uuid7_id(field: str, value: str) -> str:
    """Return the id. Raises `BadUserInput` unless it is a UUID of version 7, which sorts by time."""
    if uuid7_moment(value) is None:
        raise BadUserInput(f"`{field}` must be a UUID of version 7, in lower case and with hyphens.", field=field)
    return value
