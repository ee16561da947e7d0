"""Text that users write: one check for every field that stores some.

`line` is for names and titles, `prose` for text that may span lines. Both return the text in NFC without the space
around it, and refuse what would deceive a reader or disturb a terminal, a log or a layout:

- control characters; prose may hold line breaks and tabs
- bidirectional embeddings, overrides and isolates (U+202A to U+202E, U+2066 to U+2069)
- tag characters (U+E0000 to U+E007F), noncharacters and lone surrogates
- more than 30 in a row of combining marks and characters that show nothing
- in lines, other characters that show nothing (Default_Ignorable_Code_Point), such as U+200B; ZWJ and ZWNJ are part of
  emoji and of many scripts, and U+FE0F of an emoji where it follows a character that is text without it
- text of nothing but spaces and characters that show nothing
"""

import re
from unicodedata import category, normalize

from datastore.errors import BadUserInput
from datastore.model.text_characters import BLANK, MOST_MARKS, NOT_IN_A_LINE, NOT_IN_PROSE, has_pile

# A character in NFC stands for at most this many of the text before.
LONGEST_SEQUENCE = 4
_INVISIBLE = {"Cc", "Cf", "Cs", "Zl", "Zp", "Zs"}


def line(field: str, value: str, longest: int) -> str:
    """Return the text in NFC without the space around it.

    Raises `BadUserInput` unless it has 1 to `longest` characters and holds none that a line must not hold.
    """
    text = _normal(field, value, longest)
    _refuse(field, text, NOT_IN_A_LINE)
    return text


def prose(field: str, value: str, longest: int) -> str:
    """Return the text in NFC without the space around it. It may hold line breaks and tabs.

    Raises `BadUserInput` unless it has 1 to `longest` characters and holds none that prose must not hold.
    """
    text = _normal(field, value, longest)
    check(field, text)
    return text


def check(field: str, text: str) -> None:
    """Raise `BadUserInput` for a text that holds what prose must not hold. Any length will do."""
    _refuse(field, text, NOT_IN_PROSE)


def normal(field: str, text: str) -> str:
    """Return the text in NFC, with the space around it. Any length will do; `check` tells what it must not hold.

    Raises `BadUserInput` for a pile of marks.
    """
    if text.isascii():
        return text
    _check_marks(field, text)
    text = normalize("NFC", text)
    _check_marks(field, text)  # a mark may stand for several
    return text


def visible(text: str) -> str:
    """Return what shows of a text: everything but spaces, controls, formats and blank letters."""
    if text.isascii() and text.isprintable():
        return text.replace(" ", "")
    return "".join(character for character in BLANK.sub("", text) if category(character) not in _INVISIBLE)


def _normal(field: str, value: str, longest: int) -> str:
    text = value.strip()
    # What is longer is too long in NFC, too.
    if not text.isascii() and len(text) <= longest * LONGEST_SEQUENCE:
        text = normal(field, text)
    if not 1 <= len(text) <= longest or not visible(text):
        raise BadUserInput(f"`{field}` must have between 1 and {longest} characters.", field=field)
    return text


def _check_marks(field: str, text: str) -> None:
    if has_pile(text):
        raise BadUserInput(f"`{field}` must not hold more than {MOST_MARKS} combining marks in a row.", field=field)


def _refuse(field: str, text: str, refused: re.Pattern[str]) -> None:
    if not (text.isascii() and text.isprintable()) and (found := refused.search(text)):
        code = f"U+{ord(found.group()):04X}"
        raise BadUserInput(
            f"`{field}` must not hold {code}: control characters, bidirectional overrides and invisible characters "
            "are refused.",
            field=field,
        )
