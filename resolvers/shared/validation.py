"""What inputs may hold: each check names the field and the limit."""

from collections.abc import Callable, Collection, Mapping, Sequence, Sized
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

from strawberry.exceptions import StrawberryInputCoercionError
from strawberry.schema.types.base_scalars import DateTimeDefinition
from strawberry.utils.str_converters import to_camel_case

from datastore.errors import BadUserInput
from datastore.model import identifiers
from datastore.model.identifiers import LONGEST_EMAIL, LONGEST_USER_ID
from datastore.model.text_characters import has_hidden
from datastore.model.timestamps import FIRST_YEAR, LAST_YEAR
from resolvers.shared import user_text

Number = TypeVar("Number", int, float)
# Takes the field's name in the API and its value, answers the value to go on with, or raises `BadUserInput`.
Check = Callable[[str, Any], Any]

LONGEST_ID = 100
LONGEST_CODE = 20
LONGEST_URL = 1000
LONGEST_LIST = 100
GREATEST_INT = 2**31 - 1  # of GraphQL
SHORTEST_DATE = len("20260625")

assert DateTimeDefinition.parse_value is not None
_parse_iso: Callable[[object], datetime] = DateTimeDefinition.parse_value


def checked(input: object, checks: Mapping[str, Check], at: str = "") -> dict[str, Any]:
    """The values of an input's fields, each by its check; None needs none. `at` is where the input stands, `teams[3].`.

    Raises `BadUserInput`.
    """
    values = {name: getattr(input, name) for name in checks}
    return {
        name: None if value is None else checks[name](at + to_camel_case(name), value) for name, value in values.items()
    }


def changes(input: object, checks: Mapping[str, Check], removable: Collection[str]) -> dict[str, Any]:
    """The fields of an input of `Maybe`s that were given; None, for those that are `removable`, takes a value away.

    Raises `BadUserInput`, also when nothing was given.
    """
    given = {name: some.value for name in checks if (some := getattr(input, name)) is not None}
    if not given:
        raise BadUserInput("`input` must name at least one field to change.", field="input")
    for name, value in given.items():
        field = to_camel_case(name)
        if value is not None:
            given[name] = checks[name](field, value)
        elif name not in removable:
            raise BadUserInput(f"`{field}` must not be null.", field=field)
    return given


line = user_text.line
prose = user_text.prose


def user_id(field: str, value: str) -> str:
    """Return the id of a user as it is: that of a token. Raises `BadUserInput` for a text that is none."""
    if identifiers.is_user_id(value):
        return value
    if value.strip() and identifiers.user_id_fits(value):
        raise _hidden(field)
    raise BadUserInput(f"`{field}` must have between 1 and {LONGEST_USER_ID} bytes of UTF-8.", field=field)


def id(field: str, value: str, longest: int = LONGEST_ID) -> str:
    """Return the id without the spaces around it.

    Raises `BadUserInput` unless it has 1 to `longest` characters, none of which is a control or shows nothing.
    """
    given = value.strip()
    if not 1 <= len(given) <= longest or not user_text.visible(given):
        raise BadUserInput(f"`{field}` must have between 1 and {longest} characters.", field=field)
    if has_hidden(given):
        raise _hidden(field)
    return given


def _hidden(field: str) -> BadUserInput:
    return BadUserInput(f"`{field}` must not hold control characters or invisible ones.", field=field)


code = partial(id, longest=LONGEST_CODE)
name = partial(line, longest=200)
note = partial(prose, longest=1000)


def ids(field: str, values: Sequence[str]) -> Sequence[str]:
    """Each as `id` takes it."""
    signs = "".join(values)
    # As nearly always: there is nothing to strip, nor to look at one by one.
    plain = signs.isascii() and signs.isprintable() and " " not in signs and all(values)
    if plain and max(map(len, values), default=0) <= LONGEST_ID:
        return values
    return [id(field, value) for value in values]


def url(field: str, value: str) -> str:
    """Return an address on the web.

    Raises `BadUserInput` for one that is too long, not http(s), or names no host or a user, and for one with a
    backslash: browsers read it as a slash, and other programs as a part of the host.
    """
    address = line(field, value, longest=LONGEST_URL)
    if not address.startswith(("https://", "http://")):
        raise BadUserInput(f"`{field}` must begin with https:// or http://.", field=field)
    if user_text.visible(address) != address or "\\" in address or not _names_host_alone(address):
        raise BadUserInput(
            f"`{field}` must name a host and no user, and hold no spaces and no backslashes.", field=field
        )
    return address


def _names_host_alone(address: str) -> bool:
    try:
        parts = urlsplit(address)
        return bool(parts.hostname) and "@" not in parts.netloc
    except ValueError:
        return False


def email(field: str, value: str) -> str:
    """Return the normal form of an email address. Raises `BadUserInput`, which does not repeat what was given."""
    address = identifiers.email(value)
    if address is None:
        raise BadUserInput(
            f"`{field}` must be an email address of at most {LONGEST_EMAIL} characters, such as ada@example.com.",
            field=field,
        )
    return address


def flag(_field: str, value: bool) -> bool:
    return value


def number(field: str, value: Number, *, least: Number, most: Number) -> Number:
    """The number. Raises `BadUserInput` unless it lies within the bounds, both included."""
    if not least <= value <= most:
        raise BadUserInput(f"`{field}` must be between {least} and {most}.", field=field)
    return value


def version(value: int | None) -> int | None:
    """The version that a change goes by, None for any. Raises `BadUserInput` for a number that none can have."""
    return None if value is None else number("expectedVersion", value, least=0, most=GREATEST_INT)


def moment_from(value: object) -> datetime:
    """Return the moment of an ISO 8601 text.

    A date without a time means its midnight. A moment without an offset is in UTC.
    Raises `StrawberryInputCoercionError` for any other value, such as a month or a number.
    """
    moment = _parse_iso(value)
    if moment.tzinfo is not None:
        return moment
    if len(str(value).partition("T")[0]) < SHORTEST_DATE:
        raise StrawberryInputCoercionError(f'"{value}" names no day.')
    return moment.replace(tzinfo=UTC)


def moment(field: str, value: datetime) -> datetime:
    """Return the moment in UTC. Raises `BadUserInput` for a year before `FIRST_YEAR` or after `LAST_YEAR`."""
    try:
        utc = value.astimezone(UTC)
    except OverflowError:
        utc = None
    if utc is None or not FIRST_YEAR <= utc.year <= LAST_YEAR:
        raise BadUserInput(f"`{field}` must lie in the years {FIRST_YEAR} to {LAST_YEAR} (UTC).", field=field)
    return utc


def listed(field: str, values: Sized) -> None:
    """Raise `BadUserInput` for a list that is too long."""
    if len(values) > LONGEST_LIST:
        raise BadUserInput(f"`{field}` may hold at most {LONGEST_LIST}, not {len(values)}.", field=field)
