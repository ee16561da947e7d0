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

from datastore.private_files import private_file

# The variable with the key that the owner of an engine demands, and that clients of an engine at a URL send.
VARIABLE = "GATEWAY_ENGINE_KEY"
KEY = re.compile(r"[A-Za-z0-9_-]{32,128}")
KEY_FILE = "engine.key"
END_OF_HEAD = b"\r\n\r\n"

_CREDENTIAL = re.compile(rb"AWS4-HMAC-SHA256\s+Credential=([^/,\s]{1,128})/")
FROM_A_PAGE = "The embedded engine takes no requests from web pages."
NO_KEY = f"The embedded engine's access key is missing or wrong: set {VARIABLE} to the engine's."


class KeyUnusable(Exception):
    """The access key cannot be used as it is set; the message says what to set."""


def key_in_environment() -> str | None:
    """Return the key that GATEWAY_ENGINE_KEY sets, None without one. Raises `KeyUnusable`."""
    key = os.environ.get(VARIABLE)
    if key and not KEY.fullmatch(key):
        raise KeyUnusable(f"{VARIABLE} must have 32 to 128 letters, digits, - or _: `openssl rand -hex 32` makes one.")
    return key or None


def kept_key(folder: Path) -> str:
    """Return the key that is kept in a data directory, made at first use. Raises `OSError` and `KeyUnusable`.

    Only the owner of the engine's lock may call this: no other process then writes the file.
    """
    path = folder / KEY_FILE
    with suppress(FileNotFoundError):
        key = path.read_text().strip()
        if not KEY.fullmatch(key):
            raise KeyUnusable(f"{path} holds no access key: delete it, and the engine makes another one.")
        return key
    made, draft = new_key(), path.with_suffix(".key.tmp")
    with open(draft, "w", opener=private_file) as file:
        file.write(made)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    return made


def new_key() -> str:
    """Return a random key of 256 bits."""
    return secrets.token_hex(32)


def bearing(key: str) -> str:
    """Return the Authorization header's value for a request that is not signed but contains the key."""
    return f"AWS4-HMAC-SHA256 Credential={key}/"


def refusal_of(head: bytes, key: str) -> str | None:
    """Return why a request with this head is refused, None for one that contains the key.

    A browser that lets a page send a request to another origin names the page's in `Origin`.
    """
    fields = [line.partition(b":") for line in head.partition(END_OF_HEAD)[0].split(b"\n")[1:]]
    named = [(name.strip().lower(), value.strip()) for name, _, value in fields]
    if any(name == b"origin" for name, _ in named):
        return FROM_A_PAGE
    given = [value for name, value in named if name == b"authorization"]
    credential = _CREDENTIAL.match(given[0]) if len(given) == 1 else None
    if credential is None or not hmac.compare_digest(credential[1], key.encode()):
        return NO_KEY
    return None
