"""Checks of the gateway's answers."""

from typing import Any

from tests.support.served import Answer


def data_of(answer: Answer) -> Any:
    """Return the data of an answer, which must have no errors."""
    assert answer.errors is None, answer.errors
    return answer.data


def codes_and_fields(answer: Answer) -> list[tuple[str, str | None]]:
    """Return the code of each error, and the path of the argument that it names."""
    return [(error["extensions"]["code"], error["extensions"].get("field")) for error in answer.errors or ()]
