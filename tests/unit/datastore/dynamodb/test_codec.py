"""Attribute values to the real engine and back: values do not change, and those that do not fit are refused."""

from collections.abc import Mapping
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from datastore.database import Database
from datastore.dynamodb.client import RequestRefused
from datastore.dynamodb.codec import decode, decode_item, encode, encode_item, item_bytes

KEY = {"PK": {"S": "A"}, "SK": {"S": "B"}}
ENGINE_SETTINGS = settings(
    deadline=None,
    max_examples=80,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
INTS = st.integers(-(10**38) + 1, 10**38 - 1) | st.builds(
    lambda digits, zeros: digits * 10**zeros, st.integers(-999, 999), st.integers(36, 122)
)
FLOATS = st.floats(allow_nan=False, allow_infinity=False).filter(
    lambda value: value == 0 or 1e-130 <= abs(value) < 1e126
)
DECIMALS = st.builds(
    lambda digits, adjusted: Decimal(digits).scaleb(adjusted - len(str(abs(digits))) + 1),
    st.integers(-(10**28) + 1, 10**28 - 1),
    st.integers(-130, 125),
) | st.builds(
    lambda sign, digits, exponent: Decimal((sign, tuple(digits), exponent - len(digits))),
    st.integers(0, 1),
    st.lists(st.integers(0, 9), min_size=38, max_size=38).filter(lambda digits: digits[0] > 0),
    st.integers(-129, 126),
)
NUMBERS = INTS | FLOATS | DECIMALS
SETS = (
    st.sets(TEXTS, min_size=1, max_size=4)
    | st.sets(INTS, min_size=1, max_size=4)
    | st.sets(st.binary(max_size=8), min_size=1, max_size=4)
)
VALUES = st.recursive(
    TEXTS | NUMBERS | st.binary(max_size=20) | st.booleans() | st.none() | SETS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


def nest(depth: int) -> Any:
    value: Any = "innermost"
    for level in range(depth):
        value = [value] if level % 2 else {"in": value}
    return value


def exact(value: Any) -> Any:
    """Return a value for comparison: numbers by all digits and without their type, and bools apart."""
    match value:
        case bool():
            return ("bool", value)
        case int() | float() | Decimal():
            return Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
        case Mapping():
            return {name: exact(inner) for name, inner in value.items()}
        case list() | tuple():
            return [exact(inner) for inner in value]
        case set() | frozenset():
            return {exact(inner) for inner in value}
    return value


async def stored_value(database: Database, raw: Mapping[str, Any]) -> dict[str, Any]:
    """Put an attribute value and return it as the engine stores it."""
    name = f"{database.prefix}blip"
    await database.client.call("PutItem", {"TableName": name, "Item": KEY | {"value": raw}})
    answer = await database.client.call("GetItem", {"TableName": name, "Key": KEY})
    raw_answer: dict[str, Any] = answer["Item"]["value"]
    return raw_answer


@ENGINE_SETTINGS
@given(value=VALUES)
@example(value=nest(31))
@example(value={"": "", "b": b"", "l": [], "m": {}, "s": {""}, "n": None, "zero": -0.0, "t": True, "f": False})
@example(value=[1e-130, -1e-130, 9.99e125, 5e-130, 1.7976931348623157e100, 0.1, 1e22, 1e23, 123456789.123])
@example(value=[10**38 - 1, -(10**38) + 1, 10**125, Decimal("9." + "9" * 37 + "E+125"), Decimal("1E-130")])
@example(value=[Decimal("0." + "1" * 38), Decimal("-0"), Decimal("0E-500"), Decimal("1.50"), Decimal("0.1")])
async def test_any_value_is_returned_as_it_was_stored(database: Database, value: Any) -> None:
    raw = await stored_value(database, encode(value))

    assert exact(decode(raw)) == exact(value)


@ENGINE_SETTINGS
@given(value=st.lists(NUMBERS, min_size=1, max_size=5))
async def test_a_number_read_and_written_back_is_the_same_text(database: Database, value: list[Any]) -> None:
    first = await stored_value(database, encode(value))
    again = await stored_value(database, encode(decode(first)))

    assert again == first


@ENGINE_SETTINGS
@given(
    value=st.floats() | st.integers(-(10**140), 10**140) | st.decimals(allow_nan=True) | DECIMALS.map(lambda n: n / 3)
)
@example(value=5e-324)
@example(value=9.999999999999999e-131)
@example(value=1e126)
@example(value=10**38 + 1)
@example(value=Decimal("1." + "0" * 37 + "1"))
@example(value=Decimal("1." + "0" * 40))
async def test_a_number_that_is_not_refused_is_stored_exactly(database: Database, value: Any) -> None:
    try:
        raw = encode(value)
    except ValueError:
        return

    assert exact(decode(await stored_value(database, raw))) == exact(value)


class Shape(StrEnum):
    ROUND = "round"


class Word(str, Enum):  # noqa: UP042 - the older way, whose str() is not its value
    ONE = "one"


class Level(IntEnum):
    HIGH = 3


class SizeEnum(int, Enum):
    BIG = 9


@pytest.mark.parametrize(
    ("value", "raw"),
    [
        ("", {"S": ""}),
        (Shape.ROUND, {"S": "round"}),
        (Word.ONE, {"S": "one"}),
        (Level.HIGH, {"N": "3"}),
        (SizeEnum.BIG, {"N": "9"}),
        (True, {"BOOL": True}),
        (None, {"NULL": True}),
        (-0.0, {"N": "0"}),
        (Decimal("-0.00"), {"N": "0"}),
        (2.5, {"N": "2.5"}),
        (Decimal("1E+3"), {"N": "1E+3"}),
        (10**125, {"N": "1" + "0" * 125}),
        (bytearray(b"\x00\xff"), {"B": "AP8="}),
        ((1, "a"), {"L": [{"N": "1"}, {"S": "a"}]}),
        ({"b", "a"}, {"SS": ["a", "b"]}),
        (frozenset({2, 1.5}), {"NS": ["1.5", "2"]}),
        ({b"b", b"a"}, {"BS": ["YQ==", "Yg=="]}),
        ({"a": {"b": [None]}}, {"M": {"a": {"M": {"b": {"L": [{"NULL": True}]}}}}}),
    ],
)
def test_values_are_encoded_for_the_wire(value: Any, raw: dict[str, Any]) -> None:
    assert encode(value) == raw


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        float("-inf"),
        Decimal("NaN"),
        Decimal("sNaN"),
        Decimal("-Infinity"),
        5e-324,
        -9.9e-131,
        1e126,
        1.7976931348623157e308,
        10**38 + 1,
        10**126,
        10**400,
        -(10**5000),
        Decimal("1E-131"),
        Decimal("1E+126"),
        Decimal("1E+999999"),
        Decimal("1." + "0" * 37 + "1"),
        set(),
        frozenset(),
        {True},
        {None},
        {1, "a"},
        {"a", b"a"},
        {(1, 2)},
        {Decimal("NaN"), Decimal(1)},
        object(),
        1j,
        [object()],
        {"a": {"b": float("nan")}},
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_outside_dynamodb_is_refused_before_sending(value: Any) -> None:
    with pytest.raises(ValueError, match=r"DynamoDB|A set holds|A number has"):
        encode(value)


@pytest.mark.parametrize("raw", [{}, {"S": "a", "N": "1"}, {"X": "a"}, {"N": "one"}, {"N": "1e"}, {"L": [{}]}])
def test_an_invalid_attribute_value_is_refused(raw: dict[str, Any]) -> None:
    with pytest.raises((ValueError, ArithmeticError)):
        decode(raw)


@pytest.mark.breaks_rules("it is about refusals")
@pytest.mark.parametrize(
    "value",
    [nest(32), nest(100), nest(200), {0.1, Decimal("0.1")}, "x" * 410_000],
    ids=["33 levels", "101 levels", "201 levels", "the same number twice", "400 KB"],
)
async def test_the_engine_refuses_what_only_it_can_detect(database: Database, value: Any) -> None:
    with pytest.raises(RequestRefused, match=r"ValidationException|SerializationException"):
        await stored_value(database, encode(value))


@given(text=st.from_regex(r"-?(0|[1-9][0-9]{0,37})(\.[0-9]{1,10})?(E[+-]?[0-9]{1,2})?", fullmatch=True))
@example(text="0." + "0" * 129 + "1")
@example(text="100000000000000000000000")
@example(text="0.1000000000000000055511151231257827")
def test_no_text_of_a_number_changes_its_value(text: str) -> None:
    number = Decimal(text)
    if len("".join(map(str, number.as_tuple().digits)).strip("0")) > 38:
        return

    assert Decimal(encode(decode({"N": text}))["N"]) == number


def test_items_are_encoded_name_by_name() -> None:
    item = {"PK": "A", "count": 3, "tags": {"x"}, "none": None}

    raw = encode_item(item)

    assert raw == {"PK": {"S": "A"}, "count": {"N": "3"}, "tags": {"SS": ["x"]}, "none": {"NULL": True}}
    assert decode_item(raw) == item


def test_the_size_of_an_item() -> None:
    """The size is that of names and values, plus 3 bytes for each list or map and 1 for each of its entries."""
    item = {
        "naïve": "naïve",
        "number": 12_345,
        "bytes": b"123456",
        "yes": True,
        "nothing": None,
        "list": ["a", b"bcd"],
        "map": {"a": {"b": "c"}},
        "set": {"one", "two"},
    }
    of_names = 6 + 6 + 5 + 3 + 7 + 4 + 3 + 3
    assert item_bytes(encode_item(item)) == of_names + 6 + 3 + 6 + 1 + 1 + (3 + 2 + 4) + (3 + 2 + 3 + 1 + 2) + 6
