"""Decoding of JSON from clients and operators, with readable errors."""

from typing import Any

import orjson

TOO_LARGE_A_NUMBER = "number is infinity when parsed as double"


def decode_json(text: bytes | str, noun: str) -> Any:
    """Return the decoded JSON; of a repeated key the last value. `noun` names the text in messages.

    Raises `ValueError` with a complete sentence.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ValueError(json_problem(text, noun, error)) from None


def json_problem(text: bytes | str, noun: str, error: orjson.JSONDecodeError) -> str:
    """Return a sentence that says why a text cannot be decoded. `noun` names the text."""
    if not text.strip():
        return f"{noun} is empty."
    if not _is_utf8(text):
        return f"{noun} is not UTF-8."
    problem = "a number is too large" if error.msg == TOO_LARGE_A_NUMBER else error.msg
    return f"{noun} is not valid JSON: {problem} (line {error.lineno}, column {error.colno})."


def _is_utf8(text: bytes | str) -> bool:
    try:
        text.decode() if isinstance(text, bytes) else text.encode()
    except UnicodeError:
        return False
    return True
