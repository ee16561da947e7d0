"""Replaces emails in logs and explanations, which must not hold personal data.

In logs a keyed hash replaces an email. The key is made at the start of the process and never leaves it, so a reader of
the log cannot test which email a hash stands for. Within a process equal emails have equal hashes; in another process
they have others.
"""

import hmac
import re
import secrets
from typing import Any

from datastore.model.identifiers import ascii_lower

HIDDEN = "<email>"
_KEY = secrets.token_bytes(32)

# Between these signs emails stand in keys, which have neither in their parts, and in messages. It is looked for once
# between each two of them: from every letter on it would take a long text without any seconds.
_EMAIL = re.compile(r"(?<![^\s#])[^\s#]+@[^\s#]+")
# In a message it may stand in quotation marks.
_PUNCTUATION = "'\"(),.:;"


def redact_emails(value: Any) -> Any:
    """A text in whose place of each email a hash stands, the same within this process; other values as they are."""
    return _EMAIL.sub(_hashed, value) if isinstance(value, str) else value


def hide_emails(text: str) -> str:
    """Return the text for a client that may see no email: with `HIDDEN` in the place of each.

    A hash would let the client tell whether an email that it guesses is the one of somebody it knows by another id.
    """
    return _EMAIL.sub(HIDDEN, text)


def _hashed(email: re.Match[str]) -> str:
    address = ascii_lower(email.group().strip(_PUNCTUATION))
    return f"<{hmac.digest(_KEY, address.encode(errors='replace'), 'sha256').hex()[:8]}>"
