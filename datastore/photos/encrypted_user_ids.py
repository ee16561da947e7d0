"""Ids that stand for emails where those must not show.

An id is the email encrypted (AES-SIV, RFC 5297): the same for the same email, so that no table of ids is needed and a
list by id is the Query that a list by email is. Another secret makes other ids, so it is not changed. They are padded:
emails of up to 31 bytes have ids of one length, and longer ones by steps of 32.
"""

import hmac
from collections.abc import Iterable
from contextlib import suppress

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from datastore.model import base64url
from datastore.session.cursors import padded, unpadded

LONGEST = 500


class UserIds:
    """Makes and reads the ids of photo users. All processes that answer for one another share the secret.

    Ids made with one of the `others` are read too.
    """

    def __init__(self, secret: bytes, others: Iterable[bytes] = ()) -> None:
        self._cipher = _cipher(secret)
        self._accepted = (self._cipher, *map(_cipher, others))

    def of(self, email: str) -> str:
        return base64url.encode(self._cipher.encrypt(padded(email.encode()), None))

    def email_of(self, user_id: str) -> str | None:
        """The email an id stands for, or None for a text that is no such id."""
        if len(user_id) > LONGEST:
            return None
        for cipher in self._accepted:
            with suppress(InvalidTag, ValueError):
                return unpadded(cipher.decrypt(base64url.decode(user_id), None)).decode()
        return None


def _cipher(secret: bytes) -> AESSIV:
    return AESSIV(hmac.digest(secret, b"photo user", "sha512"))
