"""Cursors: DynamoDB's start key in base64url, signed, and bound to the field and arguments that made it.

Those of personal lists are padded and encrypted besides (AES-SIV, RFC 5297): their keys hold emails.
"""

import hmac
from collections.abc import Mapping
from typing import Any

import orjson
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from datastore import base64url
from datastore.attributes import Item, Raw, decode_item, encode_item
from datastore.errors import BadCursor
from datastore.mac import Mac
from datastore.padding import padded, unpadded

TAG_BYTES = 16
MAX_CHARACTERS = 20_000  # enough for the longest keys of a table and an index, all quotation marks
REFUSAL = "This cursor was not made by this field with these arguments."


class Cursors:
    """Seals and opens cursors. All processes that answer for one another share the secret."""

    def __init__(self, secret: bytes) -> None:
        self._mac = Mac(hmac.digest(secret, b"cursor", "sha256"))
        self._cipher = AESSIV(hmac.digest(secret, b"personal cursor", "sha512"))

    def seal(self, key: Item, binding: bytes, *, personal: bool = False) -> str:
        """A cursor for the position just at `key`."""
        return self.seal_raw(encode_item(key), binding, personal=personal)

    def seal_raw(self, key: Raw, binding: bytes, *, personal: bool = False) -> str:
        """The same for a key as DynamoDB answered it."""
        content = orjson.dumps(key, option=orjson.OPT_SORT_KEYS)
        if personal:
            return base64url.encode(self._cipher.encrypt(padded(content), [binding]))
        return base64url.encode(self._tag(content, binding) + content)

    def open(self, cursor: str, binding: bytes, *, personal: bool = False) -> Item:
        """The key a cursor stands for. Raises `BadCursor` if it was altered or belongs elsewhere."""
        if len(cursor) > MAX_CHARACTERS:
            raise BadCursor(REFUSAL)
        try:
            raw = base64url.decode(cursor)
        except ValueError:
            raise BadCursor(REFUSAL) from None
        return decode_item(orjson.loads(self._decrypted(raw, binding) if personal else self._checked(raw, binding)))

    def _checked(self, raw: bytes, binding: bytes) -> bytes:
        tag, content = raw[:TAG_BYTES], raw[TAG_BYTES:]
        if not hmac.compare_digest(tag, self._tag(content, binding)):
            raise BadCursor(REFUSAL)
        return content

    def _decrypted(self, raw: bytes, binding: bytes) -> bytes:
        try:
            return unpadded(self._cipher.decrypt(raw, [binding]))
        except (InvalidTag, ValueError):
            raise BadCursor(REFUSAL) from None

    def _tag(self, content: bytes, binding: bytes) -> bytes:
        return self._mac.digest(len(binding).to_bytes(4, "big") + binding + content)[:TAG_BYTES]


def binding(field: str, arguments: Mapping[str, Any]) -> bytes:
    """What a cursor is bound to: the field it came from and its arguments other than the paging ones."""
    return field.encode() + b"?" + orjson.dumps(dict(arguments), option=orjson.OPT_SORT_KEYS)
