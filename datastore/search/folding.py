"""Normalization of words for comparison: without case, accents and compatibility forms."""

import re
from collections.abc import Callable
from unicodedata import category, combining, normalize

from datastore.model.text_characters import BLANK

MAX_WORD_LENGTH = 64  # characters; longer words are truncated
# Letters with strokes, which have no decomposition. Users without such keys type the plain letters.
_STROKES = str.maketrans({"ø": "o", "ł": "l", "đ": "d", "ħ": "h", "ŧ": "t", "ı": "i", "æ": "ae", "œ": "oe", "ð": "d"})
# Canonical combining classes of marks that distinguish letters, in Japanese and Indic scripts.
# https://www.unicode.org/reports/tr44/#Canonical_Combining_Class_Values
_KEPT_MARKS = (0, 7, 8, 9)
_ASCII_WORD = re.compile(r"[a-z0-9_]+")
# Scripts that are written without spaces: Han, kana, Thai, Lao, Myanmar, Khmer.
_UNSPACED = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\U00020000-\U0003ffff]+)"
)


def folded(text: str) -> str:
    """Return the text without case, accents and compatibility forms. Folding is idempotent."""
    if text.isascii():
        return text.lower()
    plain = normalize("NFKD", normalize("NFKD", BLANK.sub("", text)).casefold())
    kept = "".join(character for character in plain if combining(character) in _KEPT_MARKS)
    return normalize("NFC", kept.translate(_STROKES))


def words(text: str) -> list[str]:
    """Return the words of a text for the index, in their order.

    A run of a script without spaces becomes its pairs of adjacent characters and its last character, so that a query
    can find any part of the run, even a single character.
    """
    return _words(text, lambda run: [*_pairs(run), run[-1]])


def query_words(text: str) -> list[str]:
    """Return the words of a query's text: a subset of the `words` of any text that contains it."""
    return _words(text, lambda run: _pairs(run) or [run])


def _words(text: str, parts_of_run: Callable[[str], list[str]]) -> list[str]:
    """Return the words of a text, with the parts of each run of a script without spaces."""
    found: list[str] = []
    for word in _split(text):
        for number, run in enumerate(_UNSPACED.split(word)):
            if run:
                found += parts_of_run(run) if number % 2 else [run[:MAX_WORD_LENGTH]]
    return found


def tag(name: str) -> str:
    """Return the folded tag; empty for a name without letters and digits."""
    return "".join(_split(name))[:MAX_WORD_LENGTH]


def _pairs(run: str) -> list[str]:
    return [run[start : start + 2] for start in range(len(run) - 1)]


def _split(text: str) -> list[str]:
    """Return the runs of letters, digits, marks and underscores, at least one of them a letter or a digit."""
    plain = folded(text)
    if plain.isascii():
        runs = _ASCII_WORD.findall(plain)
    else:
        runs = "".join(character if _in_word(character) else " " for character in plain).split(" ")
    return [run for run in runs if any(map(str.isalnum, run))]


def _in_word(character: str) -> bool:
    return character == "_" or character.isalnum() or category(character)[0] == "M"
