"""What inputs may hold: each check names the field and the limit."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence, Sized
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar
from unicodedata import category
from urllib.parse import urlsplit

from strawberry.utils.str_converters import to_camel_case

from datastore.errors import BadUserInput

Number = TypeVar("Number", int, float)
# Takes the field's name in the API and its value, answers the value to go on with, or raises `BadUserInput`.
Check = Callable[[str, Any], Any]

LONGEST_ID = 100
LONGEST_USER_ID = 256  # the `sub` of a token
LONGEST_URL = 1000
LONGEST_LIST = 100
LONGEST_EMAIL = 254  # RFC 5321, 4.5.3.1.3, and an erratum
_EMAIL = re.compile(r"[^@\s\x00-\x1f\x7f]+@[^@\s\x00-\x1f\x7f]+")
INVISIBLE = {"Cc", "Cf", "Zl", "Zp", "Zs"}  # Unicode's categories of controls, formats and spaces
GREATEST_INT = 2**31 - 1  # of GraphQL
FIRST_YEAR, LAST_YEAR = 1000, 9000  # so that a window around a moment is one too


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


def text(field: str, value: str, longest: int) -> str:
    """The text without the space around it. Raises `BadUserInput` unless 1 to `longest` characters are left.

    One of nothing but invisible characters is as good as empty.
    """
    stripped = value.strip()
    plain = stripped and stripped.isascii() and stripped.isprintable()  # as nearly all are
    if len(stripped) > longest or not (plain or visible(stripped)):
        raise BadUserInput(f"`{field}` must have between 1 and {longest} characters.", field=field)
    return stripped


def prose(field: str, value: str, longest: int) -> str:
    """A text as `text` takes it. Raises `BadUserInput` also for control characters but line breaks and tabs."""
    given = text(field, value, longest)
    if any(category(sign) == "Cc" and sign not in "\n\r\t" for sign in given):
        raise BadUserInput(f"`{field}` must not hold control characters.", field=field)
    return given


def visible(value: str) -> str:
    """What one sees of a text: all but spaces, controls and the like."""
    return "".join(sign for sign in value if category(sign) not in INVISIBLE)


def user_id(field: str, value: str) -> str:
    """The id of a user as a token has it, the space around it included. Raises `BadUserInput` for what is none."""
    if not value.strip() or len(value) > LONGEST_USER_ID:
        raise BadUserInput(f"`{field}` must have between 1 and {LONGEST_USER_ID} characters.", field=field)
    return value


id = partial(text, longest=LONGEST_ID)
name = partial(text, longest=200)
code = partial(text, longest=20)
note = partial(text, longest=1000)


def ids(field: str, values: Sequence[str]) -> Sequence[str]:
    """Each as `id` takes it."""
    signs = "".join(values)
    # As nearly always: there is nothing to strip, nor to look at one by one.
    plain = signs.isascii() and signs.isprintable() and " " not in signs and all(values)
    if plain and max(map(len, values), default=0) <= LONGEST_ID:
        return values
    return [id(field, value) for value in values]


def url(field: str, value: str) -> str:
    """An address on the web. Raises `BadUserInput` for one that is too long, not http(s), or names no host."""
    address = text(field, value, longest=LONGEST_URL)
    if not address.startswith(("https://", "http://")):
        raise BadUserInput(f"`{field}` must begin with https:// or http://.", field=field)
    if visible(address) != address or not _host(address):
        raise BadUserInput(f"`{field}` must name a host, and hold no spaces.", field=field)
    return address


def _host(address: str) -> str | None:
    try:
        return urlsplit(address).hostname
    except ValueError:
        return None


def email(field: str, value: str) -> str:
    """An email address in lower case. Raises `BadUserInput`, which does not repeat what was given."""
    address = value.strip().lower()
    if len(address) > LONGEST_EMAIL or not _EMAIL.fullmatch(address):
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


def moment(field: str, value: datetime) -> datetime:
    """The moment in UTC. Raises `BadUserInput` for one without an offset, or in no year that counts."""
    if value.tzinfo is None:
        raise BadUserInput(f"`{field}` needs an offset from UTC, such as 2026-06-25T14:30:00Z.", field=field)
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
