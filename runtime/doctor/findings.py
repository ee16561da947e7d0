"""The findings of checks."""

from collections.abc import AsyncIterator, Callable, Iterator
from enum import StrEnum
from typing import NamedTuple


class Level(StrEnum):
    """The severity of a finding. With an error the gateway does not start, or does not answer all access patterns."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


class Finding(NamedTuple):
    """The result of a check. `text` says what was found, and for a warning or an error what to do."""

    level: Level
    subject: str
    text: str


Check = Callable[[], Iterator[Finding] | AsyncIterator[Finding]]


async def findings_of(subject: str, check: Check, problems: tuple[type[Exception], ...]) -> AsyncIterator[Finding]:
    """Yield the findings of a check. An exception of the types `problems` becomes an error of the subject."""
    try:
        found = check()
        if isinstance(found, Iterator):
            for finding in found:
                yield finding
        else:
            async for finding in found:
                yield finding
    except problems as problem:
        yield Finding(Level.ERROR, subject, str(problem) or type(problem).__name__)
