"""Encrypted user ids, which replace emails in the API.

An id is the email, encrypted deterministically (AES-SIV, RFC 5297). No table of ids is needed, and a list by id is the
Query of the list by email. A change of the secret changes all ids. Emails are padded: those of up to 31 bytes have ids
of one length, longer ones in steps of 32 bytes.
"""

import hmac
from collections.abc import Iterable
from contextlib import suppress

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from datastore.model import base64url
from datastore.session.cursors import padded, unpadded

MAX_LENGTH = 500


class UserIds:
    """Encrypts and decrypts the ids of photo users. All processes of a deployment share the secret.

    Ids that were encrypted with one of the `others` are accepted too.
    """

    def __init__(self, secret: bytes, others: Iterable[bytes] = ()) -> None:
        self._cipher = _cipher(secret)
        self._accepted = (self._cipher, *map(_cipher, others))

    def encrypt(self, email: str) -> str:
        return base64url.encode(self._cipher.encrypt(padded(email.encode()), None))

    def decrypt(self, user_id: str) -> str | None:
        """Return the email of an id, or None for any other text."""
        if len(user_id) > MAX_LENGTH:
            return None
        for cipher in self._accepted:
            with suppress(InvalidTag, ValueError):
                return unpadded(cipher.decrypt(base64url.decode(user_id), None)).decode()
        return None


def _cipher(secret: bytes) -> AESSIV:
    return AESSIV(hmac.digest(secret, b"photo user", "sha512"))
