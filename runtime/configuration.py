"""The settings of a process that serves a store."""

from pathlib import Path
from typing import Any

from datastore.database import StoreOptions
from server.settings import Misconfigured, Settings, from_environment, local_secret


def settings_of(store: StoreOptions, data_dir: Path, **given: Any) -> Settings:
    """Return the settings from the environment and `given`. Raise `Misconfigured` if they cannot be used.

    Without GATEWAY_SECRET, a secret is kept in `data_dir`. A store in AWS requires GATEWAY_SECRET, because the
    gateways that share the store share the secret.
    """
    found = from_environment(**given)
    if store.in_aws and "secret" not in found:
        raise Misconfigured(
            "Set GATEWAY_SECRET (cursors are signed with it, and tokens without GATEWAY_JWKS_URL): "
            "a store that others share gets no secret made up for it."
        )
    return Settings(**{"secret": found.get("secret") or local_secret(data_dir), **found})
