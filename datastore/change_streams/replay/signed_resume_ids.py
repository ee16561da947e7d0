"""Resume ids: resume tokens that are signed and bound to a subscription's field and arguments."""

import hmac
import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from datastore.change_streams.replay.resume_token import UNKNOWN, ResumeToken, decode
from datastore.errors import BadUserInput
from datastore.model.base64url import decode as decode_base64
from datastore.model.base64url import encode
from datastore.model.prehashed_hmac import PrehashedHmac

# An id has about 180 bytes for a stream of four shards on AWS. A token has at most 128 shards.
LONGEST_RESUME = 4096
TAG_BYTES = 12
SECRET_BYTES = 3
# The text that a subscription puts into its ids. Server-sent events carry it in a line, so it has no breaks or spaces.
_KNOWN = re.compile(r"[A-Za-z0-9%:,._~-]*")
# Ids of earlier releases, which did not sign them.
_UNSIGNED = re.compile(r"[0-9a-z]{1,32}\.[0-9a-z]{1,16}\.[0-9a-z]{1,32}(~[A-Za-z0-9%:,._~-]*)?")

Seal = Callable[[ResumeToken, str], str]


class ResumeRequest(NamedTuple):
    """The event after which a client resumes."""

    token: ResumeToken
    #: The text that the subscription has added to the id: see `Delivery.known`.
    known: str


def not_an_id() -> BadUserInput:
    """Return the error for a text that is not a resume id."""
    message = "`resumeAfter` must be the `eventId` of an event, or null."
    return BadUserInput(message, field="resumeAfter")


class _Secret:
    """A key derived from a secret. `name` distinguishes the secret from others, and reveals nothing of it."""

    def __init__(self, secret: bytes) -> None:
        self.mac = PrehashedHmac(hmac.digest(secret, b"resume id", "sha256"))
        self.name = self.mac.digest(b"name")[:SECRET_BYTES]


class ResumeIds:
    """A signer and verifier of ids. All processes of an installation share the secret.

    `open` also accepts ids signed with one of the `others`; `seal` never signs with these.
    """

    def __init__(self, secret: bytes, others: Iterable[bytes] = ()) -> None:
        self._secret = _Secret(secret)
        # The latest token that was sealed, encoded, and in the form that is signed: many subscriptions seal the same.
        self._latest: ResumeToken | None = None
        self._content = self._signed = b""
        self._accepted = {known.name: known for known in (*map(_Secret, others), self._secret)}

    def sealer(self, binding: bytes) -> Seal:
        """Return a function that signs ids of a subscription. An id longer than `LONGEST_RESUME` has no token."""
        name, digest = self._secret.name, self._secret.mac.after(_begun(binding)).digest

        def seal(token: ResumeToken, known: str) -> str:
            if token is not self._latest:
                self._latest, self._content = token, token.encode()
                self._signed = len(self._content).to_bytes(4, "big") + self._content
            tag = digest(self._signed + known.encode())[:TAG_BYTES]
            id = encode(name + tag + self._content) + (f"~{known}" if known else "")
            return id if len(id) <= LONGEST_RESUME else seal(UNKNOWN, "")

        return seal

    def open(self, text: object, binding: bytes) -> ResumeRequest:
        """Return the content of an id.

        The token is `UNKNOWN`, so that the client receives RESYNC, for an id of another field, other arguments, another
        secret or an earlier release, and for an altered id.

        Raises:
            BadUserInput: The text does not have the form of an id.
        """
        if not isinstance(text, str) or len(text) > LONGEST_RESUME:
            raise not_an_id()
        if _UNSIGNED.fullmatch(text):
            return ResumeRequest(UNKNOWN, "")
        sealed, _, known = text.partition("~")
        try:
            raw = decode_base64(sealed)
        except ValueError:
            raise not_an_id() from None
        if len(raw) < SECRET_BYTES + TAG_BYTES or _KNOWN.fullmatch(known) is None:
            raise not_an_id()
        secret = self._accepted.get(raw[:SECRET_BYTES])
        if secret is None:
            return ResumeRequest(UNKNOWN, "")
        tag, content = raw[SECRET_BYTES : SECRET_BYTES + TAG_BYTES], raw[SECRET_BYTES + TAG_BYTES :]
        signed = _begun(binding) + len(content).to_bytes(4, "big") + content + known.encode()
        if not hmac.compare_digest(tag, secret.mac.digest(signed)[:TAG_BYTES]):
            return ResumeRequest(UNKNOWN, "")
        try:
            return ResumeRequest(decode(content), known)
        except ValueError:  # an id of a release with another format of positions
            return ResumeRequest(UNKNOWN, "")


def _begun(binding: bytes) -> bytes:
    """Return the prefix of the signed bytes, before the position."""
    return len(binding).to_bytes(4, "big") + binding
