"""The forms of input values, of which the resolvers make checks. Limits are inclusive.

The `typical` length of a form is for the sizes of items (`sizes.py`).
"""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Line:
    """A text of 1 to `longest` characters without line breaks."""

    longest: int
    typical: ClassVar[int] = 20


@dataclass(frozen=True, slots=True)
class Prose:
    """A text of 1 to `longest` characters, which may hold line breaks. If `may_be_blank`, a blank text means None."""

    longest: int
    may_be_blank: bool = False
    typical: ClassVar[int] = 40


@dataclass(frozen=True, slots=True)
class Identifier:
    """An id of 1 to `longest` characters."""

    longest: int = 100
    typical: ClassVar[int] = 12


@dataclass(frozen=True, slots=True)
class Url:
    """An http(s) address of at most `longest` characters."""

    longest: int = 1000
    typical: ClassVar[int] = 60


@dataclass(frozen=True, slots=True)
class Boolean:
    """A boolean."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A time in the years 1000 to 9000."""


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number."""

    minimum: int
    maximum: int


TextForm = Line | Prose | Identifier | Url
Form = TextForm | Boolean | Moment | Whole
