"""Emails as logs may show them: personal data, which is to stand in no log."""

import hashlib
import re
from typing import Any

# Between these signs emails stand in keys, which have neither in their parts, and in messages.
_EMAIL = re.compile(r"[^\s#]+@[^\s#]+")
# In a message it may stand in quotation marks.
_AROUND = "'\"(),.:;"


def without_emails(value: Any) -> Any:
    """A text in whose place of each email a hash stands, the same for the same email; other values as they are."""
    return _EMAIL.sub(_hashed, value) if isinstance(value, str) else value


def _hashed(email: re.Match[str]) -> str:
    address = email.group().strip(_AROUND).lower()
    return f"<{hashlib.sha256(address.encode(errors='replace')).hexdigest()[:8]}>"
