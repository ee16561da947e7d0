"""Secrets from files: `NAME_FILE` names a file with the value of `NAME`, and a systemd credential `NAME` has it.

Files keep secrets out of the environment, which child processes inherit and process listings show.
https://systemd.io/CREDENTIALS/
"""

from collections.abc import Mapping
from pathlib import Path

# The variables whose values may be in files: keys, tokens, and URLs that may contain passwords.
SECRETS = (
    "GATEWAY_SECRET",
    "GATEWAY_OTHER_SECRETS",
    "GATEWAY_USER_ID_SECRET",
    "GATEWAY_METRICS_TOKEN",
    "GATEWAY_ENGINE_KEY",
    "GATEWAY_REDIS_URL",
    "GATEWAY_BUS",
    "GATEWAY_SEARCH_URL",
    "SPORTMONKS_API_TOKEN",
)
SUFFIX = "_FILE"
#: The folder of the credentials, which systemd sets (LoadCredential, SetCredentialEncrypted).
CREDENTIALS = "CREDENTIALS_DIRECTORY"
MAX_SECRET_BYTES = 65_536


class SecretUnusable(Exception):
    """The file of a secret cannot be used. The message names the variable and the file, never their content."""


def with_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with the secrets that are in files.

    Raises:
        SecretUnusable: A file cannot be read, is empty or too large, or a secret is set twice.
    """
    found = {name: secret for name in SECRETS if (secret := secret_in(environment, name)) is not None}
    return {**environment, **found}


def secret_in(environment: Mapping[str, str], name: str) -> str | None:
    """Return the secret of a variable: its value, the content of its file, or the credential of its name.

    Raises `SecretUnusable`.
    """
    value, path = environment.get(name), environment.get(name + SUFFIX)
    if value and path:
        raise SecretUnusable(f"Set only one of {name} and {name}{SUFFIX}.")
    if path:
        return _read(name + SUFFIX, Path(path))
    if value:
        return value
    folder = environment.get(CREDENTIALS)
    return _read(f"The credential {name}", Path(folder, name), optional=True) if folder else None


def _read(source: str, path: Path, *, optional: bool = False) -> str | None:
    """Return the content of a file without the space around it; None if the file is optional and does not exist."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_SECRET_BYTES + 1)
        secret = content.decode().strip()
    except OSError as problem:
        if optional and isinstance(problem, FileNotFoundError):
            return None
        raise SecretUnusable(f"{source}: {path} cannot be read: {problem.strerror or problem}.") from None
    except UnicodeDecodeError:
        raise SecretUnusable(f"{source}: {path} is not a text in UTF-8.") from None
    if len(content) > MAX_SECRET_BYTES:
        raise SecretUnusable(f"{source}: {path} has more than {MAX_SECRET_BYTES:,} bytes.")
    if not secret:
        raise SecretUnusable(f"{source}: {path} is empty.")
    return secret
