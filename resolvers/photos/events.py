"""Logged events of apps (SPARKS-W1)."""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any

import orjson
import strawberry
from strawberry.scalars import JSON

from datastore.dynamodb.codec import encode
from datastore.errors import BadUserInput
from datastore.keyspace.photos import events as keys
from datastore.model.ids import uuid7
from datastore.model.timestamps import from_iso, iso
from datastore.photos.events import LoggedEvent
from datastore.session.batch_write import BATCH_WRITES
from resolvers.photos.photo_access import caller_email
from resolvers.shared import user_text
from resolvers.shared import validation as validate
from resolvers.shared.arguments import argument, optional, required
from resolvers.shared.authorization import require
from resolvers.shared.context import Info

EVENT_TYPE = re.compile(r"[A-Za-z0-9_.-]{1,50}")
MAX_BYTES, MAX_LEVELS, MAX_VALUES, LONGEST_KEY = 4096, 5, 100, 100
# The range of integers that JSON responses support. DynamoDB could store larger integers.
MIN_INTEGER, MAX_INTEGER = -(2**63), 2**63 - 1
# A phone may send events after some time without a network, and its clock may be ahead.
MAX_AHEAD, MAX_AGE = timedelta(minutes=5), timedelta(days=7)


@strawberry.input(description="An event of an app.")
class LogEventInput:
    event_type: str = required("The type of the event, such as PHOTO_VIEW: 1 to 50 letters, digits, `_`, `-` and `.`.")
    event_data: JSON | None = optional(
        "The details of the event: an object of at most 4 KB with at most 100 values in at most 5 "
        "levels. Keys have 1 to 100 characters, numbers lie in the range of 64-bit integers, and texts contain no "
        "control characters. Texts are stored in NFC. By default an empty object."
    )
    created_at: datetime | None = optional(
        "The time of the event: at most 7 days ago and at most five minutes ahead; by default the present time."
    )


Events = Annotated[list[LogEventInput], argument("The events, 1 to 25.")]


async def log_event(info: Info, input: Events) -> list[LoggedEvent]:
    context = info.context
    require(context.identity, keys.LOG_EVENT)
    if not 1 <= len(input) <= BATCH_WRITES:
        raise BadUserInput(f"`input` must contain between 1 and {BATCH_WRITES}, not {len(input)}.", field="input")
    logged = [_logged(info, event, f"input[{index}].") for index, event in enumerate(input)]
    await context.photo_events.log(logged)
    return logged


def _logged(info: Info, event: LogEventInput, prefix: str) -> LoggedEvent:
    context = info.context
    now = context.requested_at
    time = now if event.created_at is None else _event_time(f"{prefix}createdAt", event.created_at, now)
    return LoggedEvent(
        event_id=uuid7(now, context.new_id(info)),
        event_type=_event_type(f"{prefix}eventType", event.event_type),
        event_data={} if event.event_data is None else event_data(f"{prefix}eventData", event.event_data),
        email=caller_email(context.identity),
        created_at=from_iso(iso(time)),
    )


def _event_type(field: str, value: str) -> str:
    if not EVENT_TYPE.fullmatch(value):
        raise BadUserInput(f"`{field}` must have between 1 and 50 letters, digits, `_`, `-` and `.`.", field=field)
    return value


def _event_time(field: str, value: datetime, now: datetime) -> datetime:
    time = validate.timestamp(field, value)
    if not now - MAX_AGE <= time <= now + MAX_AHEAD:
        raise BadUserInput(f"`{field}` must be at most 7 days ago and at most five minutes ahead.", field=field)
    return time


def event_data(field: str, value: object) -> Mapping[str, Any]:
    """Return an object that DynamoDB and JSON can represent. Raises `BadUserInput`, which names the limit."""
    if not isinstance(value, dict):
        raise BadUserInput(f"`{field}` must be an object.", field=field)
    for count, (level, element) in enumerate(_elements(field, value)):
        if count > MAX_VALUES:
            raise BadUserInput(f"`{field}` may contain at most {MAX_VALUES} values.", field=field)
        if isinstance(element, dict | list) and level > MAX_LEVELS:
            raise BadUserInput(f"`{field}` may have at most {MAX_LEVELS} levels.", field=field)
        _check_value(field, element)
    normal: Mapping[str, Any] = _normal(field, value)
    if len(orjson.dumps(normal)) > MAX_BYTES:
        raise BadUserInput(f"`{field}` may have at most {MAX_BYTES:,} bytes as JSON.", field=field)
    return normal


def _normal(field: str, value: Any) -> Any:
    """Return the value with all its text in NFC. Raises `BadUserInput` if keys become equal."""
    if isinstance(value, str):
        return user_text.normal(field, value)
    if isinstance(value, list):
        return [_normal(field, element) for element in value]
    if not isinstance(value, dict):
        return value
    normal = {user_text.normal(field, key): _normal(field, element) for key, element in value.items()}
    if len(normal) < len(value):
        raise BadUserInput(f"`{field}` must not contain keys that are equal in NFC.", field=field)
    _check_keys(field, normal)
    return normal


def _elements(field: str, value: object, level: int = 1) -> Iterator[tuple[int, object]]:
    """Yield the value and all values in it, each with its level. The caller stops at the first limit."""
    yield level, value
    if isinstance(value, dict):
        _check_keys(field, value)
        for key in value:
            user_text.check(field, key)
        for element in value.values():
            yield from _elements(field, element, level + 1)
    elif isinstance(value, list):
        for element in value:
            yield from _elements(field, element, level + 1)


def _check_keys(field: str, value: Mapping[str, Any]) -> None:
    if not all(1 <= len(key) <= LONGEST_KEY for key in value):
        raise BadUserInput(f"The keys of `{field}` must have between 1 and {LONGEST_KEY} characters.", field=field)


def _is_too_large(value: object) -> bool:
    """Return whether a number exceeds 64 bits. The JSON parser has converted larger integers to floats."""
    if isinstance(value, float):
        return not MIN_INTEGER < value < MAX_INTEGER
    return isinstance(value, int) and not MIN_INTEGER <= value <= MAX_INTEGER


def _check_value(field: str, value: object) -> None:
    """Raise `BadUserInput` for a value that JSON or DynamoDB cannot represent."""
    if value is None or isinstance(value, bool | dict | list):
        return
    if isinstance(value, str):
        user_text.check(field, value)
    if _is_too_large(value):
        raise BadUserInput(f"`{field}` may contain integers of at most 64 bits, and no larger numbers.", field=field)
    try:
        encode(value)
        orjson.dumps(value)
    except (TypeError, ValueError) as problem:
        raise BadUserInput(f"`{field}` contains a value that cannot be stored: {problem}", field=field) from None
