"""DynamoDB's attribute values to Python and back.

S str, N int | float | Decimal, B bytes, BOOL bool, NULL None, L list, M dict, SS/NS/BS set. A number that a float
cannot hold exactly comes as Decimal, so that writing back what was read never changes it.
https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_AttributeValue.html
"""

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

Item = dict[str, Any]
Raw = Mapping[str, Mapping[str, Any]]  # as DynamoDB answers an item
Number = int | float | Decimal

DIGITS = 38
BEYOND_DIGITS = 10**DIGITS
SMALLEST, BEYOND_FLOAT = 1e-130, 1e126
OUT_OF_RANGE = "DynamoDB's numbers are 0 or of a magnitude from 1E-130 to 9.99E+125, without NaN and infinity."


def decode_item(item: Mapping[str, Mapping[str, Any]]) -> Item:
    """An item (or key) as DynamoDB answers it, as a plain dict."""
    # Most attributes are strings: they are taken here, without a call each.
    return {name: value["S"] if "S" in value and len(value) == 1 else decode(value) for name, value in item.items()}


def decode(value: Mapping[str, Any]) -> Any:
    """One attribute value; raises `ValueError` for what is none."""
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
            pass  # an exponent
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
    """About how many bytes an item takes, as DynamoDB answers it: what it bills is rounded up to KB.

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
    """A plain dict as DynamoDB takes it; attributes whose value is None are stored as NULL, so leave them out."""
    return {name: encode(value) for name, value in item.items()}


def encode(value: Any) -> dict[str, Any]:
    """One value; raises `ValueError` for numbers, sets and types that DynamoDB does not hold."""
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
    """In an order of their own, so that the same set is always the same text."""
    try:
        return sorted(values)
    except (TypeError, ArithmeticError):
        return list(values)


def _number_text(value: Number) -> str:
    """The number's text. Raises `ValueError` unless DynamoDB holds it exactly.

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
    """Count digits and compare magnitudes without arithmetic: a context would round."""
    if not value.is_finite():
        raise ValueError(OUT_OF_RANGE)
    if not -130 <= value.adjusted() <= 125:
        raise ValueError(OUT_OF_RANGE)
    digits = "".join(map(str, value.as_tuple().digits)).strip("0")
    if len(digits) > DIGITS:
        raise ValueError(f"A number has at most {DIGITS} significant digits in DynamoDB.")
