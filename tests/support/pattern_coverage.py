"""Declarations of the access patterns that a test exercises on documented items, checked against its calls."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from tests.support.contract import every_call
from tests.support.served import Served

Test = TypeVar("Test", bound=Callable[..., Any])
# Patterns whose calls have the id of another one: a subscription begins with the read of the state, and the published
# events are written with the state.
PART_OF = {"CRIC-S1": "AM-1", "AM-5": "AM-4"}
# Subscriptions that read nothing but the table's stream.
FROM_STREAM = {"BLIP-S1", "QUAKE-S1"}


def covers(*ids: str) -> Callable[[Test], Test]:
    """Declare that a test exercises these patterns."""

    def marked(test: Test) -> Test:
        test.covers = ids  # type: ignore[attr-defined]
        return test

    return marked


def covered_by(test: object) -> tuple[str, ...]:
    """Return the ids of the patterns that a test declares."""
    return getattr(test, "covers", ())


@contextmanager
def checked(served: Served, test: object) -> Iterator[None]:
    """Fail unless the test calls each pattern that it declares."""
    with every_call(served) as calls:
        yield
        used = {id for call in calls for id in call.patterns}
        reads_a_stream = any(call.operation == "GetRecords" for call in calls)
    declared = {PART_OF.get(id, id) for id in covered_by(test)}
    assert declared - FROM_STREAM <= used
    assert reads_a_stream or not declared & FROM_STREAM
