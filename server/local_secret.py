"""The secret of a gateway on this machine, in a file of its data directory."""

import os
import secrets
import time
from pathlib import Path

from datastore.private_files import FolderUnusable, open_private_folder, unusable_folder
from server.settings import SHORTEST_SECRET, Misconfigured

SECRET_TRIES, SECRET_PAUSE_SECONDS = 20, 0.05


def local_secret(data_dir: Path) -> str:
    """Return the secret of this machine's local gateways. Its file is created at first use, for its owner only.

    Raises `Misconfigured`.
    """
    path = data_dir / "secret"
    try:
        open_private_folder(data_dir)
        return _create_secret(path) or _read_secret(path)
    except FolderUnusable as problem:
        raise Misconfigured(str(problem)) from None
    except OSError as problem:
        raise Misconfigured(str(unusable_folder(data_dir, problem))) from None


def _create_secret(path: Path) -> str | None:
    """Create the file with a new secret, and return the secret; None if the file exists."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return None
    secret = secrets.token_urlsafe(48)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(secret)
    except OSError:
        path.unlink()  # a partial secret would prevent the next attempt
        raise
    return secret


def _read_secret(path: Path) -> str:
    """Return the secret in the file. Wait for another process that may be writing it."""
    for _ in range(SECRET_TRIES):
        secret = path.read_text(errors="replace").strip()
        if len(secret) >= SHORTEST_SECRET:
            return secret
        time.sleep(SECRET_PAUSE_SECONDS)
    raise Misconfigured(
        f"{path} contains no secret of {SHORTEST_SECRET} characters. Delete it: the next start creates a new one."
    )
