"""Normal forms of identifiers: the one form in which each kind is stored and compared.

Except in tags, only ASCII letters are folded. `str.lower()`, `str.upper()` and Unicode normalisation map characters
outside ASCII onto ASCII letters: KELVIN SIGN (U+212A) becomes `k`. Two different identifiers would become equal.

=================  =====================================================================================================
Kind               Normal form
=================  =====================================================================================================
User id            As in the token, compared character by character. No forbidden characters (see `text_characters`).
                   1 to 256 bytes of UTF-8, where `#` and `%` count three, as keys percent-encode them.
Email              ASCII letters in lower case. An address with characters outside ASCII is accepted only if it is
                   already in NFC and lower case, and is compared unchanged.
Other ids          Without surrounding space, compared character by character. No forbidden characters.
Tag                NFC, in lower case, of any script. A word is not a tag if NFC and lower case turn one of its
                   characters outside ASCII into an ASCII one.
Code               ASCII letters in upper case, the rest unchanged (leagues).
Name of a place    As configured, compared character by character (areas, categories).
Role               As in the token, compared character by character.
=================  =====================================================================================================
"""

import re
from string import ascii_lowercase, ascii_uppercase
from unicodedata import normalize

from datastore.model.text_characters import has_forbidden_characters

# Bytes of UTF-8, where `#` and `%` count three because keys percent-encode them. Every key with a user id of this
# length is within DynamoDB's limits. In OpenID Connect Core 1.0, section 2, a `sub` has at most 255 ASCII characters.
MAX_USER_ID_BYTES = 256
MAX_EMAIL_CHARACTERS = 254  # RFC 5321, section 4.5.3.1.3, and its erratum

_TO_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)
_TO_UPPER = str.maketrans(ascii_lowercase, ascii_uppercase)
_EMAIL = re.compile(r"[^@\s\x00-\x1f\x7f]+@[^@\s\x00-\x1f\x7f]+")


def ascii_lower(text: str) -> str:
    """Return the text with its ASCII letters in lower case and everything else unchanged."""
    return text.lower() if text.isascii() else text.translate(_TO_LOWER)


def ascii_upper(text: str) -> str:
    """Return the text with its ASCII letters in upper case and everything else unchanged."""
    return text.upper() if text.isascii() else text.translate(_TO_UPPER)


def is_user_id(text: str) -> bool:
    """Return whether the text may be a user's id. Surrounding space is part of an id."""
    return user_id_fits(text) and bool(text.strip()) and not has_forbidden_characters(text)


def user_id_fits(text: str) -> bool:
    """Return whether the text has at most `MAX_USER_ID_BYTES` bytes as it is encoded in keys."""
    if len(text) <= MAX_USER_ID_BYTES // 4:  # a character takes at most four bytes
        return True
    # A long text is not encoded. Lone surrogates are refused elsewhere.
    encoded = text.encode(errors="surrogatepass") if len(text) <= MAX_USER_ID_BYTES else b""
    return bool(encoded) and len(encoded) + 2 * (encoded.count(b"#") + encoded.count(b"%")) <= MAX_USER_ID_BYTES


def normal_email(text: str) -> str | None:
    """Return the normal form of an email address of at most 254 characters, or None for any other text."""
    address = ascii_lower(text)
    if len(address) > MAX_EMAIL_CHARACTERS or not _EMAIL.fullmatch(address) or has_forbidden_characters(address):
        return None
    return address if address.isascii() or _is_nfc_and_lower(address) else None


def normal_tag(text: str) -> str | None:
    """Return the text in NFC and lower case, or None if that turns a character outside ASCII into an ASCII one."""
    if text.isascii():
        return text.lower()
    if any(_becomes_ascii(character) for character in text):
        return None
    # NFC gives one form to texts that look the same: é is one character or two. Lower case may leave NFC.
    return normalize("NFC", normalize("NFC", text).lower())


def _is_nfc_and_lower(text: str) -> bool:
    return text == normalize("NFC", text) == text.lower()


def _becomes_ascii(character: str) -> bool:
    return not character.isascii() and normalize("NFC", character).lower().isascii()
