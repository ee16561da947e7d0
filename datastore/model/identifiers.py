"""Normal forms of identifiers: the one form in which each kind is stored and compared.

Only ASCII letters are folded. `str.lower()`, `str.upper()` and Unicode normalisation map characters outside ASCII onto
ASCII letters: KELVIN SIGN (U+212A) becomes `k`. An identifier that went through them would equal another one.

=================  =====================================================================================================
Kind               Normal form
=================  =====================================================================================================
User id            As the token has it, compared character by character. No control or invisible characters, no
                   piles of marks; 1 to 256 bytes of UTF-8, where `#` and `%` count three.
Email              ASCII letters in lower case. An address with characters outside ASCII is compared as it is; one that
                   is not in NFC and lower case already is no identifier. New accounts have ASCII addresses.
Other ids          Without the space around it, compared character by character. No control or format characters.
Tag                NFC, in lower case, of any script; a word that these two would turn into another ASCII word is no
                   tag.
Code               ASCII letters in upper case, the rest as it is (leagues).
Name of a place    As it is configured, compared character by character (areas, categories).
Role               As it is in the token, compared character by character.
=================  =====================================================================================================
"""

import re
from string import ascii_lowercase, ascii_uppercase
from unicodedata import normalize

from datastore.model.text_characters import has_hidden

# Bytes of UTF-8, where `#` and `%` count three, as keys encode them: with it each key that is made of a user id fits.
# OpenID Connect Core 1.0, 2: a `sub` has at most 255 ASCII characters.
LONGEST_USER_ID = 256
LONGEST_EMAIL = 254  # RFC 5321, 4.5.3.1.3, and an erratum

_TO_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)
_TO_UPPER = str.maketrans(ascii_lowercase, ascii_uppercase)
_EMAIL = re.compile(r"[^@\s\x00-\x1f\x7f]+@[^@\s\x00-\x1f\x7f]+")


def ascii_lower(text: str) -> str:
    """Return the text with its ASCII letters in lower case and everything else as it is."""
    return text.lower() if text.isascii() else text.translate(_TO_LOWER)


def ascii_upper(text: str) -> str:
    """Return the text with its ASCII letters in upper case and everything else as it is."""
    return text.upper() if text.isascii() else text.translate(_TO_UPPER)


def is_user_id(text: str) -> bool:
    """Whether the text may be a user's id. It is compared as it is, the spaces around it included."""
    return user_id_fits(text) and bool(text.strip()) and not has_hidden(text)


def user_id_fits(text: str) -> bool:
    """Whether the text has at most `LONGEST_USER_ID` bytes as keys hold it."""
    if len(text) <= LONGEST_USER_ID // 4:  # a character takes at most four
        return True
    encoded = text.encode(errors="surrogatepass") if len(text) <= LONGEST_USER_ID else b""
    return bool(encoded) and len(encoded) + 2 * (encoded.count(b"#") + encoded.count(b"%")) <= LONGEST_USER_ID


def email(text: str) -> str | None:
    """Return the normal form of an email address, or None for a text that is no address of at most 254 characters."""
    address = ascii_lower(text)
    if len(address) > LONGEST_EMAIL or not _EMAIL.fullmatch(address) or has_hidden(address):
        return None
    return address if address.isascii() or _is_stable(address) else None


def lower_word(text: str) -> str | None:
    """Return the text in NFC and lower case, or None where that turns a character outside ASCII into an ASCII one."""
    if text.isascii():
        return text.lower()
    if any(_becomes_ascii(character) for character in text):
        return None
    # One form for what looks the same: é is one character or two. Lower case may leave NFC.
    return normalize("NFC", normalize("NFC", text).lower())


def _is_stable(text: str) -> bool:
    return text == normalize("NFC", text) == text.lower()


def _becomes_ascii(character: str) -> bool:
    return not character.isascii() and normalize("NFC", character).lower().isascii()
