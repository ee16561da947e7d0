"""Checks of input values. The error of a check names the field and the limit."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence, Sized
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

from strawberry import Some
from strawberry.exceptions import StrawberryInputCoercionError
from strawberry.schema.types.base_scalars import DateTimeDefinition
from strawberry.utils.str_converters import to_camel_case

from datastore.errors import BadUserInput
from datastore.items import forms
from datastore.items.forms import Form
from datastore.items.stored_item import StoredItem
from datastore.model import identifiers
from datastore.model.identifiers import MAX_EMAIL_CHARACTERS, MAX_USER_ID_BYTES
from datastore.model.text_characters import has_forbidden_characters
from datastore.model.timestamps import FIRST_YEAR, LAST_YEAR
from resolvers.shared import user_text
from resolvers.shared.global_ids import GLOBAL_ID_PREFIX, local_id

Number = TypeVar("Number", int, float)
# A function of the field's name in the API and its value. It returns the checked value, or raises `BadUserInput`.
Check = Callable[[str, Any], Any]
NO_CHECKS: Mapping[str, Check] = {}
Declared = type[StoredItem] | Mapping[str, Check]

# The types whose objects have the id of a user.
USERS = ("User", "UserProfile")
LONGEST_ID = 100
LONGEST_CODE = 20
LONGEST_URL = forms.Url().longest
LONGEST_LIST = 100
GREATEST_INT = 2**31 - 1  # the greatest Int of GraphQL
SHORTEST_DATE = len("20260625")
# Nearly all ids: visible ASCII characters.
_PLAIN = re.compile(r"[!-~]+")

assert DateTimeDefinition.parse_value is not None
_parse_iso: Callable[[object], datetime] = DateTimeDefinition.parse_value


def fields(input: object, item: Declared, prefix: str = "", *, own: Mapping[str, Check] = NO_CHECKS) -> dict[str, Any]:
    """Return the checked values of an input's fields, as the stored item declares them. None is not checked.

    `prefix` is the path of the input, such as `teams[3].`. `own` are checks that replace those of the declaration.
    Raises `BadUserInput`.
    """
    return checked(input, _checks(input, item, own), prefix)


def checked(input: object, checks: Mapping[str, Check], prefix: str = "") -> dict[str, Any]:
    """Return the checked values of an input's fields, each by its own check. None is not checked."""
    values = {name: getattr(input, name) for name in checks}
    return {
        name: None if value is None else checks[name](prefix + to_camel_case(name), value)
        for name, value in values.items()
    }


def changes(
    input: object, item: Declared, removable: Collection[str] = (), *, own: Mapping[str, Check] = NO_CHECKS
) -> dict[str, Any]:
    """Return the checked values of the present fields of an input of `Maybe`s. None removes a removable field.

    The stored item declares the fields. `own` are checks that replace those of the declaration. Raises `BadUserInput`,
    also if no field is present.
    """
    checks = _checks(input, item, own)
    values = {name: maybe.value for name in checks if isinstance(maybe := getattr(input, name), Some)}
    if not values:
        raise BadUserInput("`input` must name at least one field to change.", field="input")
    for name, value in values.items():
        field = to_camel_case(name)
        if value is not None:
            values[name] = checks[name](field, value)
        elif name not in (removable if isinstance(item, Mapping) else item.__declaration__.removable):
            raise BadUserInput(f"`{field}` must not be null.", field=field)
    return values


def field(item: type[StoredItem], name: str, value: Any) -> Any:
    """Return the checked value of a field that a stored item declares. Raises `BadUserInput`."""
    return _declared_checks(item)[name](to_camel_case(name), value)


def _checks(input: object, item: Declared, own: Mapping[str, Check]) -> Mapping[str, Check]:
    """Return the checks of the fields that an input has."""
    if isinstance(item, Mapping):
        return item
    checks = {**_declared_checks(item), **own}
    return {name: checks[name] for name in checks if hasattr(input, name)}


@cache
def _declared_checks(item: type[StoredItem]) -> Mapping[str, Check]:
    return {name: _check_of(form) for name, form in item.__declaration__.forms.items()}


def _check_of(form: Form) -> Check:
    """Return the check of a form."""
    match form:
        case forms.Line(longest):
            return partial(line, longest=longest)
        case forms.Prose(longest, may_be_blank):
            checks = partial(prose, longest=longest)
            return (lambda field, value: checks(field, value) if value.strip() else None) if may_be_blank else checks
        case forms.Identifier(longest):
            return partial(id, longest=longest)
        case forms.Url():
            return url
        case forms.Boolean():
            return boolean
        case forms.Moment():
            return timestamp
        case forms.Whole(minimum, maximum):
            return partial(number, minimum=minimum, maximum=maximum)


line = user_text.line
prose = user_text.prose


def user_id(field: str, value: str, of: tuple[str, ...] = USERS) -> str:
    """Return the id of a user unchanged, as tokens contain it. Raises `BadUserInput` for any other text.

    `of` are the types whose global ids are accepted in its place.
    """
    if value.startswith(GLOBAL_ID_PREFIX):
        value = local_id(field, value, *of)
    if identifiers.is_user_id(value):
        return value
    if value.strip() and identifiers.user_id_fits(value):
        raise _hidden(field)
    raise BadUserInput(f"`{field}` must have between 1 and {MAX_USER_ID_BYTES} bytes of UTF-8.", field=field)


def id(
    field: str, value: str, longest: int = LONGEST_ID, *, of: tuple[str, ...] = (), within: tuple[str, ...] = ()
) -> str:
    """Return the local id without the spaces around it.

    `of` are the types whose global ids are accepted in its place. `within` are the parts of a key that precede the
    local id, as other arguments state them.

    Raises `BadUserInput` unless it has 1 to `longest` characters, without control and invisible characters.
    """
    if of and value.startswith(GLOBAL_ID_PREFIX):
        value = local_id(field, value, *of, within=within)
    if _PLAIN.fullmatch(value) and len(value) <= longest:
        return value
    text = value.strip()
    if not 1 <= len(text) <= longest or not user_text.visible(text):
        raise BadUserInput(f"`{field}` must have between 1 and {longest} characters.", field=field)
    if has_forbidden_characters(text):
        raise _hidden(field)
    return text


def _hidden(field: str) -> BadUserInput:
    return BadUserInput(f"`{field}` must not contain control characters or invisible characters.", field=field)


code = partial(id, longest=LONGEST_CODE)
name = partial(line, longest=200)
note = partial(prose, longest=1000)


def ids(field: str, values: Sequence[str], *, of: tuple[str, ...] = ()) -> Sequence[str]:
    """Return the local ids, each checked and stripped as `id` does."""
    characters = "".join(values)
    # Nearly all lists pass this test, which is cheaper than checking each id.
    plain = characters.isascii() and characters.isprintable() and " " not in characters and all(values)
    if plain and max(map(len, values), default=0) <= LONGEST_ID and not (of and GLOBAL_ID_PREFIX in characters):
        return values
    return [id(field, value, of=of) for value in values]


def url(field: str, value: str) -> str:
    """Return an address on the web.

    Raises `BadUserInput` for an address that is too long, is not http(s), names a user, or names no host. A backslash
    is rejected as well: browsers read it as a slash, and other programs as a part of the host.
    """
    address = line(field, value, longest=LONGEST_URL)
    if not address.startswith(("https://", "http://")):
        raise BadUserInput(f"`{field}` must begin with https:// or http://.", field=field)
    if user_text.visible(address) != address or "\\" in address or not _names_host_alone(address):
        raise BadUserInput(
            f"`{field}` must name a host and no user, and contain neither spaces nor backslashes.", field=field
        )
    return address


def _names_host_alone(address: str) -> bool:
    try:
        parts = urlsplit(address)
        return bool(parts.hostname) and "@" not in parts.netloc
    except ValueError:
        return False


def email(field: str, value: str) -> str:
    """Return the normal form of an email address. Raises `BadUserInput`, whose message does not contain the input."""
    address = identifiers.normal_email(value)
    if address is None:
        raise BadUserInput(
            f"`{field}` must be an email address of at most {MAX_EMAIL_CHARACTERS} characters, "
            "such as ada@example.com.",
            field=field,
        )
    return address


def boolean(_field: str, value: bool) -> bool:
    return value


def number(field: str, value: Number, *, minimum: Number, maximum: Number) -> Number:
    """Return the number. Raises `BadUserInput` unless it lies within the bounds, both inclusive."""
    if not minimum <= value <= maximum:
        raise BadUserInput(f"`{field}` must be between {minimum} and {maximum}.", field=field)
    return value


def version(value: int | None) -> int | None:
    """Return the expected version of a change, or None for any version. Raises `BadUserInput` for an invalid one."""
    return None if value is None else number("expectedVersion", value, minimum=0, maximum=GREATEST_INT)


def parse_timestamp(value: object) -> datetime:
    """Return the time of an ISO 8601 text.

    A date without a time means its midnight. A time without an offset is in UTC.
    Raises `StrawberryInputCoercionError` for any other value, such as a month or a number.
    """
    time = _parse_iso(value)
    if time.tzinfo is not None:
        return time
    if len(str(value).partition("T")[0]) < SHORTEST_DATE:
        raise StrawberryInputCoercionError(f'"{value}" names no day.')
    return time.replace(tzinfo=UTC)


def timestamp(field: str, value: datetime) -> datetime:
    """Return the time in UTC. Raises `BadUserInput` for a year before `FIRST_YEAR` or after `LAST_YEAR`."""
    try:
        utc = value.astimezone(UTC)
    except OverflowError:
        utc = None
    if utc is None or not FIRST_YEAR <= utc.year <= LAST_YEAR:
        raise BadUserInput(f"`{field}` must lie in the years {FIRST_YEAR} to {LAST_YEAR} (UTC).", field=field)
    return utc


def list_size(field: str, values: Sized) -> None:
    """Raise `BadUserInput` for a list that is too long."""
    if len(values) > LONGEST_LIST:
        raise BadUserInput(f"`{field}` may contain at most {LONGEST_LIST}, not {len(values)}.", field=field)
