"""What the engines other than dynoxide cannot do, by test. A listed test that passes fails the run."""

from collections.abc import Mapping, Sequence

import pytest

LIMITATIONS: Mapping[str, Mapping[str, str]] = {"dynamodb-local": {}, "ministack": {}}


def apply(engine: str, items: list[pytest.Item]) -> None:
    """Keep the tests that run on the chosen engine, and expect those to fail that it cannot pass."""
    if engine == "dynoxide":
        return
    items[:] = [item for item in items if "engine" in fixtures_of(item)]
    for item in items:
        reason = LIMITATIONS[engine].get(item.nodeid.removeprefix("tests/"))
        if reason is not None:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))


def fixtures_of(item: pytest.Item) -> Sequence[str]:
    """The names of the fixtures that a test takes, directly or through others."""
    return getattr(item, "fixturenames", ())
