"""The parsing of single values in SportMonks payloads."""

from collections.abc import Callable
from typing import Any

import pytest

from pipelines.matches.providers.sportmonks.values import (
    count,
    decimal,
    flag,
    ident,
    moment,
    overs,
    text,
    whole,
)
from tests.support.sportmonks_samples import (
    START,
    Json,
)


@pytest.mark.parametrize(
    ("read", "value", "expected"),
    [
        (whole, "12", 12), (whole, "12.0", 12), (whole, 12.0, 12), (whole, "1.5", None), (whole, 1.5, None),
        (whole, None, None), (whole, "", None), (whole, [], None), (whole, 10**30, None), (whole, "9" * 400, None),
        (whole, float("inf"), None), (whole, float("nan"), None), (whole, True, 1), (whole, "٣", 3),
        (count, -5, 0), (count, None, 0), (count, "7", 7), (ident, True, None), (ident, 0, None), (ident, "007", "7"),
        (ident, -3, None), (decimal, "0.5", 0.5), (decimal, True, None), (decimal, "nan", None), (decimal, 1e300, None),
        (decimal, {}, None), (flag, "true", True), (flag, "0", False), (flag, None, False), (flag, 1, True),
        (flag, [1], False), (text, "  a ", "a"), (text, " ", None), (text, 5, None), (overs, 20, (20, 0)),
        (overs, "20", (20, 0)), (overs, None, None), (overs, float("nan"), None), (overs, float("inf"), None),
        (moment, "2026-06-25 12:00:00", START), (moment, "2026-06-25T14:00:00+02:00", START), (moment, "x", None),
        (moment, "0001-01-01T00:00:00+23:59", None), (moment, 5, None),
    ],
)  # fmt: skip
def test_values(read: Callable[[Any], Any], value: Json, expected: Json) -> None:
    assert read(value) == expected
