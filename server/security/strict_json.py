"""JSON that clients and operators send: decoded, or told what is wrong with it in words of ours."""

from typing import Any

import orjson

TOO_LARGE_A_NUMBER = "number is infinity when parsed as double"


def decode_json(text: bytes | str, noun: str) -> Any:
    """What the JSON says; of a key that occurs twice the last value counts. `what` is what messages call it.

    Raises `ValueError` with a whole sentence.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ValueError(_told(text, noun, error)) from None


def _told(text: bytes | str, what: str, error: orjson.JSONDecodeError) -> str:
    if not text.strip():
        return f"{what} is empty."
    if not _is_utf8(text):
        return f"{what} is not UTF-8."
    problem = "a number is too large" if error.msg == TOO_LARGE_A_NUMBER else error.msg
    return f"{what} is not valid JSON: {problem} (line {error.lineno}, column {error.colno})."


def _is_utf8(text: bytes | str) -> bool:
    try:
        text.decode() if isinstance(text, bytes) else text.encode()
    except UnicodeError:
        return False
    return True
