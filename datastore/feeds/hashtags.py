"""Tags (`#street_food`) and mentions (`@ada`) in a text."""

import re
from itertools import takewhile
from unicodedata import category

from datastore.errors import BadUserInput
from datastore.model import identifiers
from datastore.model.text_characters import is_ignorable

MAX_TAG_LENGTH = 50
MAX_NFC_SEQUENCE = 4  # the maximum number of characters that NFC combines into one
MAX_TAGS = 10
MAX_MENTION_LENGTH = 64
MAX_MENTIONS = 20

# Not within a word: an e-mail address mentions no user, and `C#` is no tag.
_TAG = re.compile(r"(?<!\w)#")
# Nor the start of an id with other characters: `@auth0|ada` does not mention `auth0`. `@ada: hello` mentions `ada`.
_MENTION = re.compile(r"(?<!\w)@([A-Za-z0-9_.-]++)(?!(?:[|:/#]+|@)\w)")


def tags(text: str) -> tuple[str, ...]:
    """Return the distinct tags in a text, lower-cased, in order. Words that are too long for a tag are ignored.

    Raises `BadUserInput` for more than 10.
    """
    text = _without_urls(text)
    words = ("".join(takewhile(_is_tag_character, text[found.end() :])) for found in _TAG.finditer(text))
    names = tuple(dict.fromkeys(name for word in words if (name := tag_name(word)) is not None))
    if len(names) > MAX_TAGS:
        raise BadUserInput(f"`text` may hold at most {MAX_TAGS} tags, not {len(names)}.", field="text")
    return names


def tag_name(word: str) -> str | None:
    """Return the tag for a word in any case, with or without `#`, or None if the word is no tag.

    A tag has 1 to 50 letters, digits and underscores of any script, and at least one letter. It has no character that
    lower-casing would make equal to another tag's (see `datastore.model.identifiers`).
    """
    word = word.removeprefix("#")
    name = identifiers.normal_tag(word) if len(word) <= MAX_TAG_LENGTH * MAX_NFC_SEQUENCE else None
    fits = name is not None and 1 <= len(name) <= MAX_TAG_LENGTH and all(map(_is_tag_character, name))
    return name if fits and any(map(str.isalpha, name or "")) else None


def mentions(text: str) -> tuple[str, ...]:
    """Return the distinct ids of users that a text mentions, in order: 1 to 64 of `A-Za-z0-9_.-`, no dot at the end.

    Raises `BadUserInput` for more than 20.
    """
    words = (word.rstrip(".") for word in _MENTION.findall(_without_urls(text)))
    ids = tuple(dict.fromkeys(word for word in words if 1 <= len(word) <= MAX_MENTION_LENGTH))
    if len(ids) > MAX_MENTIONS:
        raise BadUserInput(f"`text` may mention at most {MAX_MENTIONS} users, not {len(ids)}.", field="text")
    return ids


def _without_urls(text: str) -> str:
    """Return the text without URLs, whose `#` and `@` begin no tag or mention: `https://example.org/#top`."""
    return " ".join(word for word in text.split() if "://" not in word)


def _is_tag_character(character: str) -> bool:
    """Return whether a tag may contain the character. Visible marks are allowed, such as the vowels of Devanagari."""
    if character == "_":
        return True
    return (character.isalnum() or category(character).startswith("M")) and not is_ignorable(character)
