"""The settings of a process that serves a store."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from datastore.database import StoreOptions
from pipelines.demo import DOCUMENTS
from server.documents.settings import DocumentsMode
from server.local_secret import local_secret
from server.settings import Misconfigured, Settings, from_environment


def settings_of(store: StoreOptions, data_dir: Path, **given: Any) -> Settings:
    """Return the settings from the environment and `given`. Raise `Misconfigured` if they cannot be used.

    Without GATEWAY_SECRET, the gateways of an embedded store keep a secret in `data_dir`. Another store requires
    GATEWAY_SECRET, because gateways on other machines may share it, and have to share the secret.

    A demo has trusted documents of its own, unless the environment configures documents.
    """
    found = from_environment(**given)
    if not store.embedded and "secret" not in found:
        raise Misconfigured(
            "Set GATEWAY_SECRET (cursors are signed with it, and tokens without GATEWAY_JWKS_URL) to the same value "
            "for all gateways of this store, such as the output of `openssl rand -hex 32`. Only an embedded store "
            "gets a secret of its own, in the data directory."
        )
    settings = Settings(**{"secret": found.get("secret") or local_secret(data_dir), **found})
    if not settings.demo or any(os.environ.get(name) for name in ("GATEWAY_DOCUMENTS", "GATEWAY_DOCUMENTS_MODE")):
        return settings
    documents = replace(settings.documents, source=str(DOCUMENTS), mode=DocumentsMode.PREFER)
    return replace(settings, documents=documents)
