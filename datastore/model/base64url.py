"""base64url without padding (RFC 4648, section 5), for URLs and ids. Each value has exactly one spelling."""

from base64 import urlsafe_b64decode
from binascii import b2a_base64

_ALPHABET = bytes.maketrans(b"+/", b"-_")


def encode(raw: bytes) -> str:
    return b2a_base64(raw, newline=False).translate(_ALPHABET, b"=").decode()


def decode(text: str) -> bytes:
    """Return the bytes. Raises `ValueError` for a text that `encode` does not return, such as another spelling."""
    raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if encode(raw) != text:
        raise ValueError("This is not canonical base64url.")
    return raw
