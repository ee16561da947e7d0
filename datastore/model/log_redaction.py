"""Redaction of emails in logs and explanations, which must not contain personal data.

A keyed hash replaces an email in logs. The key is random, and never leaves the process, so a reader of the log cannot
test which email a hash belongs to. Equal emails have equal hashes within a process, and other ones in other processes.
"""

import hmac
import re
import secrets
from typing import Any

from datastore.model.identifiers import ascii_lower

HIDDEN = "<email>"
_KEY = secrets.token_bytes(32)

# White space and `#` separate emails in keys and messages. The lookbehind starts the search only after a separator:
# from every character on, it would take seconds in a long text without an email.
_EMAIL = re.compile(r"(?<![^\s#])[^\s#]+@[^\s#]+")
# A message may quote an email, or have it at the end of a sentence.
_PUNCTUATION = "'\"(),.:;"


def redact_emails(value: Any) -> Any:
    """Return a text with each email replaced by its hash. Other values are returned unchanged."""
    return _EMAIL.sub(_hashed, value) if isinstance(value, str) else value


def hide_emails(text: str) -> str:
    """Return the text with `HIDDEN` in the place of each email, for a client that may see none.

    A hash would let the client test whether an email that it guesses belongs to a user that it knows by another id.
    """
    return _EMAIL.sub(HIDDEN, text)


def _hashed(email: re.Match[str]) -> str:
    address = ascii_lower(email.group().strip(_PUNCTUATION))
    return f"<{hmac.digest(_KEY, address.encode(errors='replace'), 'sha256').hex()[:8]}>"
