"""Steps for the tests that read photos."""

from typing import Any

from tests.support.served import Answer


def good(answer: Answer) -> Any:
    assert answer.errors is None, answer.errors
    return answer.data
