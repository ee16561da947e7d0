"""AWS Signature Version 4 for DynamoDB's one kind of request: POST / with a JSON body.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
"""

import asyncio
import hashlib
import hmac
import logging
import time
from typing import Any, Protocol

from datastore.errors import Unavailable

CONTENT_TYPE = "application/x-amz-json-1.0"
RECHECK_SECONDS = 60.0
RETRY_SECONDS = 5.0

logger = logging.getLogger(__name__)


class Frozen(Protocol):
    """Credentials at one moment, as botocore freezes them."""

    @property
    def access_key(self) -> str: ...
    @property
    def secret_key(self) -> str: ...
    @property
    def token(self) -> str | None: ...


class CredentialSource:
    """Credentials that botocore found (environment, profile, role, container …), kept fresh.

    botocore refreshes temporary ones 15 minutes before they expire when asked for them; asking can block on the
    network, so it is done in a thread, at most once a minute, and once for all calls that wait for it.
    """

    def __init__(self, credentials: Any) -> None:
        self._credentials = credentials
        self._frozen: Frozen | None = None
        self._check_at = 0.0
        self._refresh: asyncio.Task[Frozen | None] | None = None

    async def current(self) -> Frozen:
        """The credentials to sign with now. Raises `Unavailable` if there are none to be had."""
        frozen = self._frozen
        if frozen is None or time.monotonic() >= self._check_at:
            # A caller that is cancelled leaves the refresh to the others.
            frozen = await asyncio.shield(self._refreshing())
        if frozen is None:
            raise Unavailable("The store's credentials cannot be had at the moment; try again.")
        return frozen

    def _refreshing(self) -> "asyncio.Task[Frozen | None]":
        if self._refresh is None or self._refresh.done():
            self._refresh = asyncio.create_task(self._ask())
        return self._refresh

    async def _ask(self) -> Frozen | None:
        """Fresh credentials; if that fails the old ones, which are good for some minutes more."""
        try:
            self._frozen = await asyncio.to_thread(self._credentials.get_frozen_credentials)
            self._check_at = time.monotonic() + RECHECK_SECONDS
        except Exception as problem:
            # Providers raise whatever their source does: botocore's errors, the network's, a helper program's.
            logger.warning("Credentials cannot be refreshed: %s", problem)
            self._check_at = time.monotonic() + RETRY_SECONDS
        return self._frozen


class Signer:
    """Signs requests; the signing key is derived once a day and credential."""

    def __init__(self, region: str) -> None:
        self._region = region
        self._key: bytes = b""
        self._key_of: tuple[str, str] = ("", "")

    def headers(
        self, credentials: Frozen, host: str, target: str, body: bytes, now: float | None = None
    ) -> dict[str, str]:
        """All headers of the request, `Authorization` among them; `now` in epoch seconds."""
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
        signed = {"content-type": CONTENT_TYPE, "host": host, "x-amz-date": stamp}
        if credentials.token:
            signed["x-amz-security-token"] = credentials.token
        signed["x-amz-target"] = target
        names = ";".join(signed)
        lines = "".join([f"{name}:{value}\n" for name, value in signed.items()])
        canonical = f"POST\n/\n\n{lines}\n{names}\n{hashlib.sha256(body).hexdigest()}"
        scope = f"{stamp[:8]}/{self._region}/dynamodb/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
        signature = hmac.digest(self._signing_key(credentials, stamp[:8]), text.encode(), "sha256").hex()
        signed["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={credentials.access_key}/{scope}, "
            f"SignedHeaders={names}, Signature={signature}"
        )
        return signed

    def _signing_key(self, credentials: Frozen, day: str) -> bytes:
        wanted = (credentials.secret_key, day)
        if self._key_of != wanted:
            key = f"AWS4{credentials.secret_key}".encode()
            for part in (day, self._region, "dynamodb", "aws4_request"):
                key = hmac.digest(key, part.encode(), "sha256")
            self._key, self._key_of = key, wanted
        return self._key
