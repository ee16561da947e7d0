"""Cursors: DynamoDB's start key in base64url, signed, and bound to a field and its arguments.

Cursors of personal lists are padded and encrypted (AES-SIV, RFC 5297), because their keys contain emails.
"""

import hmac
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import orjson
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from datastore.dynamodb.codec import Item, Raw, decode_item, encode_item
from datastore.errors import BadCursor
from datastore.model.base64url import decode, encode
from datastore.model.prehashed_hmac import PrehashedHmac

TAG_BYTES = 16
# Plaintexts are padded to a multiple of this number of bytes, so that a ciphertext hides their length.
PADDING_BYTES = 32
_END = b"\x80"
MAX_CHARACTERS = 20_000  # enough for the longest keys of a table and an index, all quotation marks
REFUSAL = "This cursor was not made by this field with these arguments."


class _CursorKeys:
    """The keys derived from a secret: of the signature, and of the encryption of personal cursors."""

    def __init__(self, secret: bytes) -> None:
        self.mac = PrehashedHmac(hmac.digest(secret, b"cursor", "sha256"))
        self.cipher = AESSIV(hmac.digest(secret, b"personal cursor", "sha512"))


class Cursors:
    """The sealing and opening of cursors. All processes of one API share the secret.

    Cursors that were sealed with one of the `other_secrets` are opened, too. New ones are sealed with `secret` only.
    """

    def __init__(self, secret: bytes, other_secrets: Iterable[bytes] = ()) -> None:
        self._keys = _CursorKeys(secret)
        self._accepted = (self._keys, *map(_CursorKeys, other_secrets))

    def seal(self, key: Item, binding: bytes, *, personal: bool = False) -> str:
        """Return a cursor for the position of an item, by its key."""
        return self.sealer(key, binding, personal=personal)(encode_item(key))

    def sealer(self, names: Iterable[str], binding: bytes, *, personal: bool = False) -> Callable[[Raw], str]:
        """Return a function that seals cursors of items as DynamoDB returns them. `names` are their key attributes.

        The work that all cursors of one list share is done once.
        """
        ordered = sorted(names)
        if personal:
            encrypt = self._keys.cipher.encrypt
            return lambda item: encode(encrypt(padded(orjson.dumps({name: item[name] for name in ordered})), [binding]))
        digest = self._keys.mac.after(_length_prefixed(binding)).digest

        def seal(item: Raw) -> str:
            key = {}
            for name in ordered:  # a comprehension would be one more call for each cursor
                key[name] = item[name]
            content = orjson.dumps(key)
            return encode(digest(content)[:TAG_BYTES] + content)

        return seal

    def open(self, cursor: str, binding: bytes, *, personal: bool = False) -> Item:
        """Return the key of a cursor. Raises `BadCursor` if it was altered or has another binding."""
        if len(cursor) > MAX_CHARACTERS:
            raise BadCursor(REFUSAL)
        try:
            raw = decode(cursor)
        except ValueError:
            raise BadCursor(REFUSAL) from None
        return decode_item(orjson.loads(self._decrypted(raw, binding) if personal else self._checked(raw, binding)))

    def _checked(self, raw: bytes, binding: bytes) -> bytes:
        tag, content = raw[:TAG_BYTES], raw[TAG_BYTES:]
        signed = _length_prefixed(binding) + content
        for keys in self._accepted:
            if hmac.compare_digest(tag, keys.mac.digest(signed)[:TAG_BYTES]):
                return content
        raise BadCursor(REFUSAL)

    def _decrypted(self, raw: bytes, binding: bytes) -> bytes:
        for keys in self._accepted:
            with suppress(InvalidTag, ValueError):
                return unpadded(keys.cipher.decrypt(raw, [binding]))
        raise BadCursor(REFUSAL)


def _length_prefixed(binding: bytes) -> bytes:
    """Return the binding as the prefix of the signed content."""
    return len(binding).to_bytes(4, "big") + binding


def binding(field: str, arguments: Mapping[str, Any]) -> bytes:
    """Return the binding of a cursor: its field, and the arguments of the field except those for paging."""
    return field.encode() + b"?" + orjson.dumps(dict(arguments), option=orjson.OPT_SORT_KEYS)


def padded(content: bytes) -> bytes:
    """Return the content with a mark at its end and zeros up to a multiple of `PADDING_BYTES` (ISO/IEC 7816-4)."""
    marked = content + _END
    return marked + bytes(-len(marked) % PADDING_BYTES)


def unpadded(raw: bytes) -> bytes:
    """Return the content of padded bytes. Raises `ValueError` for bytes that `padded` does not return."""
    content = raw.rstrip(b"\0")[:-1]
    if padded(content) != raw:
        raise ValueError("The padding is missing.")
    return content
