"""Checks of text that users write.

`line` is for names and titles, `prose` for text that may span lines. Both return the text in NFC without surrounding
space. They reject text that could deceive a reader or disturb a terminal, a log or a layout:

- control characters; prose may hold line breaks and tabs
- bidirectional embeddings, overrides and isolates (U+202A to U+202E, U+2066 to U+2069)
- tag characters (U+E0000 to U+E007F), noncharacters and lone surrogates
- more than 30 consecutive combining marks and invisible characters
- in lines, other invisible characters (Default_Ignorable_Code_Point), such as U+200B, except ZWJ and ZWNJ, which emoji
  and many scripts contain, and U+FE0F after a character that it changes to an emoji
- text that consists of spaces and invisible characters
"""

import re
from unicodedata import category, normalize

from datastore.errors import BadUserInput
from datastore.model.text_characters import BLANK, MAX_MARKS, NOT_IN_A_LINE, NOT_IN_PROSE, has_mark_pile

# A character in NFC replaces at most this many characters of the original text.
LONGEST_SEQUENCE = 4
_INVISIBLE = {"Cc", "Cf", "Cs", "Zl", "Zp", "Zs"}


def line(field: str, value: str, longest: int) -> str:
    """Return the text in NFC without surrounding space.

    Raises `BadUserInput` unless it has 1 to `longest` characters, all of which a line may contain.
    """
    text = _normal(field, value, longest)
    _reject(field, text, NOT_IN_A_LINE)
    return text


def prose(field: str, value: str, longest: int) -> str:
    """Return the text in NFC without surrounding space. It may contain line breaks and tabs.

    Raises `BadUserInput` unless it has 1 to `longest` characters, all of which prose may contain.
    """
    text = _normal(field, value, longest)
    check(field, text)
    return text


def check(field: str, text: str) -> None:
    """Raise `BadUserInput` if a text of any length contains a character that prose must not contain."""
    _reject(field, text, NOT_IN_PROSE)


def normal(field: str, text: str) -> str:
    """Return a text of any length in NFC, with its surrounding space. Single characters are not checked: see `check`.

    Raises `BadUserInput` for too many consecutive marks.
    """
    if text.isascii():
        return text
    _check_marks(field, text)
    text = normalize("NFC", text)
    _check_marks(field, text)  # NFC may replace a mark by several
    return text


def visible(text: str) -> str:
    """Return the text without spaces, control and format characters, and blank letters."""
    if text.isascii() and text.isprintable():
        return text.replace(" ", "")
    return "".join(character for character in BLANK.sub("", text) if category(character) not in _INVISIBLE)


def _normal(field: str, value: str, longest: int) -> str:
    text = value.strip()
    # A longer text is also too long in NFC, and is not normalized.
    if not text.isascii() and len(text) <= longest * LONGEST_SEQUENCE:
        text = normal(field, text)
    if not 1 <= len(text) <= longest or not visible(text):
        raise BadUserInput(f"`{field}` must have between 1 and {longest} characters.", field=field)
    return text


def _check_marks(field: str, text: str) -> None:
    if has_mark_pile(text):
        raise BadUserInput(
            f"`{field}` must not contain more than {MAX_MARKS} consecutive combining marks.", field=field
        )


def _reject(field: str, text: str, forbidden: re.Pattern[str]) -> None:
    if not (text.isascii() and text.isprintable()) and (found := forbidden.search(text)):
        code = f"U+{ord(found.group()):04X}"
        raise BadUserInput(
            f"`{field}` must not contain {code}: control characters, bidirectional overrides and invisible "
            "characters are not allowed.",
            field=field,
        )
