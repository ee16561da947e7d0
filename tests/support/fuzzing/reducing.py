"""Reduces failing examples while they fail in the same way."""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeVar

from tests.support.fuzzing.steps import Send

T = TypeVar("T")
# Runs of the target. An example that hangs takes seconds each.
MOST_RUNS = 2_000


def reduced_example(example: T, fails: Callable[[T], bool], most: int = MOST_RUNS) -> T:
    """Return the smallest example, found in at most `most` runs, for which `fails` holds as it does for `example`."""
    runs = 0
    smaller = True
    while smaller:
        smaller = False
        for candidate in _smaller(example):
            runs += 1
            if runs > most:
                return example
            if fails(candidate):
                example, smaller = candidate, True
                break
    return example


def _smaller(example: Any) -> Iterator[Any]:
    """Yield smaller examples, much smaller ones first."""
    match example:
        case bytes() | str():
            yield from _without_parts(example)
        case Send(data):
            for part in _without_parts(data):
                yield Send(bytes(part))
        case tuple():
            yield from _without_parts(example)
            for place, (first, second) in enumerate(pairwise(example)):
                if isinstance(first, Send) and isinstance(second, Send):
                    yield (*example[:place], Send(first.data + second.data), *example[place + 2 :])
            for place, part in enumerate(example):
                for smaller in _smaller(part):
                    yield (*example[:place], smaller, *example[place + 1 :])


def _without_parts(whole: Sequence[Any]) -> Iterator[Sequence[Any]]:
    size = len(whole)
    while size:
        for start in range(0, len(whole), size):
            yield whole[:start] + whole[start + size :]  # type: ignore[operator]
        size //= 2
