"""What a text names: tags (`#street_food`) and users (`@ada`)."""

import re
from itertools import takewhile
from unicodedata import category

from datastore.errors import BadUserInput
from datastore.model import identifiers
from datastore.model.text_characters import is_ignorable

LONGEST_TAG = 50
LONGEST_SEQUENCE = 4  # characters that NFC may make one of
MOST_TAGS = 10
LONGEST_MENTION = 64
MOST_MENTIONS = 20

# Not in a word: an e-mail address mentions nobody, and `C#` is no tag.
_TAG = re.compile(r"(?<!\w)#")
# Nor a part of an id that goes on in signs which mentions do not have: `@auth0|ada` is not `auth0`. `@ada: hello` is.
_MENTION = re.compile(r"(?<!\w)@([A-Za-z0-9_.-]++)(?!(?:[|:/#]+|@)\w)")


def tags(text: str) -> tuple[str, ...]:
    """The tags in a text, lower-cased, each once, in their order. A word that is too long for a tag is none.

    Raises `BadUserInput` for more than 10.
    """
    text = _without_addresses(text)
    words = ("".join(takewhile(_in_word, text[found.end() :])) for found in _TAG.finditer(text))
    names = tuple(dict.fromkeys(name for word in words if (name := tag_name(word)) is not None))
    if len(names) > MOST_TAGS:
        raise BadUserInput(f"`text` may hold at most {MOST_TAGS} tags, not {len(names)}.", field="text")
    return names


def tag_name(word: str) -> str | None:
    """The tag that a word means, in any case, with or without its `#`: letters, digits and underscores of any script.

    None for what is no tag: another sign in it, no letter, not 1 to 50 characters, or a character that would become
    another tag's (see `datastore.model.identifiers`).
    """
    word = word.removeprefix("#")
    name = identifiers.lower_word(word) if len(word) <= LONGEST_TAG * LONGEST_SEQUENCE else None
    fits = name is not None and 1 <= len(name) <= LONGEST_TAG and all(map(_in_word, name))
    return name if fits and any(map(str.isalpha, name or "")) else None


def mentions(text: str) -> tuple[str, ...]:
    """The ids of users that a text mentions, each once, in their order: 1 to 64 of `A-Za-z0-9_.-`, no dot at the end.

    Raises `BadUserInput` for more than 20.
    """
    words = (word.rstrip(".") for word in _MENTION.findall(_without_addresses(text)))
    ids = tuple(dict.fromkeys(word for word in words if 1 <= len(word) <= LONGEST_MENTION))
    if len(ids) > MOST_MENTIONS:
        raise BadUserInput(f"`text` may mention at most {MOST_MENTIONS} users, not {len(ids)}.", field="text")
    return ids


def _without_addresses(text: str) -> str:
    """What is in a URL is a part of it: `https://example.org/#top` is about no `top`."""
    return " ".join(word for word in text.split() if "://" not in word)


def _in_word(sign: str) -> bool:
    """Marks are parts of letters: the vowels of Devanagari are such. Those that show nothing are part of no tag."""
    return sign == "_" or ((sign.isalnum() or category(sign).startswith("M")) and not is_ignorable(sign))
