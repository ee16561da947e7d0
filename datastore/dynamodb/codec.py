"""Conversion between DynamoDB's attribute values and Python values.

S str, N int | float | Decimal, B bytes, BOOL bool, NULL None, L list, M dict, SS/NS/BS set. A number that a float
cannot represent exactly is decoded as Decimal, so that writing it back does not change it.
https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_AttributeValue.html
"""

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

Item = dict[str, Any]
Raw = Mapping[str, Mapping[str, Any]]  # an item as DynamoDB returns it
Number = int | float | Decimal

DIGITS = 38
BEYOND_DIGITS = 10**DIGITS
SMALLEST, BEYOND_FLOAT = 1e-130, 1e126
OUT_OF_RANGE = "DynamoDB's numbers are 0 or of a magnitude from 1E-130 to 9.99E+125, without NaN and infinity."


def decode_item(item: Mapping[str, Mapping[str, Any]]) -> Item:
    """Return an item or key as a plain dict."""
    # Most attributes are strings. They are decoded inline, without a call for each.
    return {name: value["S"] if "S" in value and len(value) == 1 else decode(value) for name, value in item.items()}


def decode(value: Mapping[str, Any]) -> Any:
    """Return an attribute value as a Python value. Raises `ValueError` for anything else."""
    if len(value) != 1:
        raise ValueError("An attribute value has exactly one type.")
    ((kind, content),) = value.items()
    if kind == "S":
        return content
    decoder = _DECODERS.get(kind)
    if decoder is None:
        raise ValueError(f"Unknown attribute type {kind!r}.")
    return decoder(content)


def decode_number(text: str) -> Number:
    if "." not in text:
        try:
            return int(text)
        except ValueError:
            pass  # the number has an exponent
    value = float(text)
    if repr(value) == text or Decimal(repr(value)) == Decimal(text):
        return value
    return Decimal(text)


_DECODERS: dict[str, Callable[[Any], Any]] = {
    "N": decode_number,
    "BOOL": bool,
    "NULL": lambda _: None,
    "M": decode_item,
    "L": lambda values: [decode(value) for value in values],
    "B": b64decode,
    "SS": set,
    "NS": lambda values: {decode_number(value) for value in values},
    "BS": lambda values: {b64decode(value) for value in values},
}


def item_bytes(item: Mapping[str, Mapping[str, Any]]) -> int:
    """Return the approximate size of an item in bytes. DynamoDB rounds the billed size up to whole KB.

    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html
    """
    return sum(len(name.encode()) + _value_bytes(value) for name, value in item.items())


def _value_bytes(value: Mapping[str, Any]) -> int:
    ((kind, content),) = value.items()
    match kind:
        case "S":
            return len(content.encode())
        case "N":
            return len(content) // 2 + 1
        case "B":
            return len(content) * 3 // 4
        case "SS" | "NS" | "BS":
            return sum(_value_bytes({kind[0]: element}) for element in content)
        case "L":
            return 3 + sum(1 + _value_bytes(element) for element in content)
        case "M":
            return 3 + len(content) + item_bytes(content)
    return 1


def encode_item(item: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return a plain dict as an item. None is stored as NULL: callers omit attributes without a value."""
    return {name: encode(value) for name, value in item.items()}


def encode(value: Any) -> dict[str, Any]:
    """Return a Python value as an attribute value.

    Raises `ValueError` for numbers, sets and types that DynamoDB cannot store.
    """
    if type(value) is str:
        return {"S": value}
    if value is None:
        return {"NULL": True}
    if isinstance(value, bool):
        return {"BOOL": value}
    if isinstance(value, int | float | Decimal):
        return {"N": _number_text(value)}
    return _encode_composite(value)


def _encode_composite(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        return {"S": "".join(value)}
    if isinstance(value, bytes | bytearray):
        return {"B": b64encode(value).decode()}
    if isinstance(value, Mapping):
        return {"M": encode_item(value)}
    if isinstance(value, list | tuple):
        return {"L": [encode(element) for element in value]}
    if isinstance(value, set | frozenset):
        return _encode_set(value)
    raise ValueError(f"DynamoDB has no type for {type(value).__name__}.")


def _encode_set(values: set[Any] | frozenset[Any]) -> dict[str, Any]:
    encoded = [encode(value) for value in _ordered(values)]
    kinds = {kind for element in encoded for kind in element}
    if len(kinds) != 1 or not kinds <= {"S", "N", "B"}:
        raise ValueError("A set holds at least one element, all strings, all numbers or all bytes.")
    kind = kinds.pop()
    return {f"{kind}S": [element[kind] for element in encoded]}


def _ordered(values: set[Any] | frozenset[Any]) -> list[Any]:
    """Return the elements sorted where possible, so that equal sets have equal encodings."""
    try:
        return sorted(values)
    except (TypeError, ArithmeticError):
        return list(values)


def _number_text(value: Number) -> str:
    """Return the text of a number. Raises `ValueError` if DynamoDB cannot store it exactly.

    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/HowItWorks.NamingRulesDataTypes.html
    """
    if not value:
        return "0"
    if isinstance(value, float):
        if not SMALLEST <= abs(value) < BEYOND_FLOAT:
            raise ValueError(OUT_OF_RANGE)
        return float.__repr__(value)
    if isinstance(value, int):
        if not -BEYOND_DIGITS < value < BEYOND_DIGITS:
            _check_exact(Decimal(value))
        return int.__repr__(value)
    _check_exact(value)
    return str(value)


def _check_exact(value: Decimal) -> None:
    """Raise `ValueError` for a number that DynamoDB cannot store exactly.

    Digits and magnitudes are compared without arithmetic, because a decimal context would round.
    """
    if not value.is_finite():
        raise ValueError(OUT_OF_RANGE)
    if not -130 <= value.adjusted() <= 125:
        raise ValueError(OUT_OF_RANGE)
    digits = "".join(map(str, value.as_tuple().digits)).strip("0")
    if len(digits) > DIGITS:
        raise ValueError(f"A number has at most {DIGITS} significant digits in DynamoDB.")
