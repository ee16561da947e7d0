"""The settings of a process that serves a store."""

from pathlib import Path
from typing import Any

from datastore.database import StoreOptions
from server.local_secret import local_secret
from server.settings import Misconfigured, Settings, from_environment


def settings_of(store: StoreOptions, data_dir: Path, **given: Any) -> Settings:
    """Return the settings from the environment and `given`. Raise `Misconfigured` if they cannot be used.

    Without GATEWAY_SECRET, the gateways of an embedded store keep a secret in `data_dir`. Another store requires
    GATEWAY_SECRET, because gateways on other machines may share it, and have to share the secret.
    """
    found = from_environment(**given)
    if not store.embedded and "secret" not in found:
        raise Misconfigured(
            "Set GATEWAY_SECRET (cursors are signed with it, and tokens without GATEWAY_JWKS_URL) to the same value "
            "for all gateways of this store, such as the output of `openssl rand -hex 32`. Only an embedded store "
            "gets a secret of its own, in the data directory."
        )
    return Settings(**{"secret": found.get("secret") or local_secret(data_dir), **found})
