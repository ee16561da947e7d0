"""The access key of the embedded engine: its source, and the check of requests.

A client sends the key as the AWS access key id of its signature, so every AWS SDK can. It is a bearer secret: the
signature itself is not checked.
"""

import hmac
import os
import re
import secrets
from contextlib import suppress
from pathlib import Path

from datastore.private_files import write_private_file
from datastore.secret_files import SecretUnusable, secret_in

# The variable with the key that an engine demands, and that clients of an engine at a URL send.
VARIABLE = "GATEWAY_ENGINE_KEY"
KEY = re.compile(r"[A-Za-z0-9_-]{32,128}")
KEY_FILE = "engine.key"
END_OF_HEAD = b"\r\n\r\n"

_CREDENTIAL = re.compile(rb"AWS4-HMAC-SHA256\s+Credential=([^/,\s]{1,128})/")
WEB_PAGE_REFUSED = "The embedded engine takes no requests from web pages."
KEY_REFUSED = f"The embedded engine's access key is missing or wrong: set {VARIABLE} to the engine's."


class KeyUnusable(Exception):
    """The access key cannot be used as it is set; the message says what to set."""


def key_in_environment() -> str | None:
    """Return the key that GATEWAY_ENGINE_KEY or its file sets, None without one. Raises `KeyUnusable`."""
    try:
        key = secret_in(os.environ, VARIABLE)
    except SecretUnusable as problem:
        raise KeyUnusable(str(problem)) from None
    if key and not KEY.fullmatch(key):
        raise KeyUnusable(f"{VARIABLE} must have 32 to 128 letters, digits, - or _: `openssl rand -hex 32` prints one.")
    return key or None


def stored_key(folder: Path) -> str:
    """Return the key stored in a data directory, created at first use. Raises `OSError` and `KeyUnusable`.

    Only the owner of the engine's lock may call this: no other process then writes the file.
    """
    path = folder / KEY_FILE
    with suppress(FileNotFoundError):
        key = path.read_text().strip()
        if not KEY.fullmatch(key):
            raise KeyUnusable(f"{path} holds no access key: delete the file, and the engine creates another key.")
        return key
    created = new_key()
    write_private_file(path, created)
    return created


def new_key() -> str:
    """Return a random key of 256 bits."""
    return secrets.token_hex(32)


def authorization(key: str) -> str:
    """Return the Authorization header's value for a request that is not signed but contains the key."""
    return f"AWS4-HMAC-SHA256 Credential={key}/"


def refusal_of(head: bytes, key: str) -> str | None:
    """Return why a request with this head is refused, or None if it contains the key.

    A browser sends the origin of a page in `Origin` when the page calls another origin.
    """
    fields = [line.partition(b":") for line in head.partition(END_OF_HEAD)[0].split(b"\n")[1:]]
    named_fields = [(name.strip().lower(), value.strip()) for name, _, value in fields]
    if any(name == b"origin" for name, _ in named_fields):
        return WEB_PAGE_REFUSED
    values = [value for name, value in named_fields if name == b"authorization"]
    credential = _CREDENTIAL.match(values[0]) if len(values) == 1 else None
    if credential is None or not hmac.compare_digest(credential[1], key.encode()):
        return KEY_REFUSED
    return None
