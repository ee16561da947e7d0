"""Bytes as texts that go into URLs and ids: base64url without padding (RFC 4648, section 5), in one spelling."""

from base64 import urlsafe_b64decode
from binascii import b2a_base64


def encode(raw: bytes) -> str:
    # Of a text there is little to replace: that is faster than to look at each character.
    return b2a_base64(raw, newline=False).rstrip(b"=").replace(b"+", b"-").replace(b"/", b"_").decode()


def decode(text: str) -> bytes:
    """The bytes. Raises `ValueError` for a text that `encode` does not make: base64 reads several spellings of them."""
    raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if encode(raw) != text:
        raise ValueError("not as it is written here")
    return raw
