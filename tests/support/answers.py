"""Checks of the gateway's answers."""

from typing import Any

from tests.support.served import Answer


def data_of(answer: Answer) -> Any:
    """Return the data of an answer, which must have no errors."""
    assert answer.errors is None, answer.errors
    return answer.data
