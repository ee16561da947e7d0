"""Targets under Hypothesis: so many examples, the same each time."""

from typing import Any

from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from tests.support.fuzzing.choices import Choices
from tests.support.fuzzing.targets import Target

LONGEST_CHOICES = 160


def fuzz(target: Target[Any], examples: int) -> None:
    """Check a number of examples of a target. Reduce a failing example and report it."""

    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(st.binary(min_size=8, max_size=LONGEST_CHOICES))
    def check(data: bytes) -> None:
        example = target.make(Choices(data))
        note(f"{target.name.upper()}.check({example!r})")
        target.check(example)

    check()
