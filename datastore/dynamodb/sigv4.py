"""AWS Signature Version 4 for DynamoDB requests, which are all POST / with a JSON body.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
"""

import asyncio
import hmac
import logging
import math
import time
from collections.abc import Callable
from datetime import datetime
from email.utils import parsedate_to_datetime
from hashlib import sha256
from typing import Any, NamedTuple, Protocol

from datastore.errors import Unavailable
from datastore.model.prehashed_hmac import PrehashedHmac
from datastore.primitives.single_flight import SingleFlight

CONTENT_TYPE = "application/x-amz-json-1.0"
RECHECK_SECONDS = 60.0
RETRY_SECONDS = 5.0
# Services accept five minutes. The AWS SDKs correct their clocks from four minutes on.
MAX_SKEW_SECONDS = 240.0

logger = logging.getLogger(__name__)


class FrozenCredentials(Protocol):
    """Credentials at one moment, as botocore freezes them."""

    @property
    def access_key(self) -> str: ...
    @property
    def secret_key(self) -> str: ...
    @property
    def token(self) -> str | None: ...


class StaticCredentials(NamedTuple):
    """Credentials that do not change, in the form of botocore's."""

    access_key: str
    secret_key: str
    token: str | None = None

    def get_frozen_credentials(self) -> FrozenCredentials:
        return self


class CredentialSource:
    """The credentials that botocore found (environment, profile, role, container …), refreshed in time.

    botocore refreshes temporary credentials on access, from 15 minutes before they expire. This may block on the
    network, so it is done in a thread, at most once a minute, and once for all waiting calls.

    `find` loads the credentials from their source again, in a thread, too: credentials that were refused may have been
    replaced there before they expired.
    """

    def __init__(self, credentials: Any, find: Callable[[], Any] | None = None) -> None:
        self._credentials = credentials
        self._find = find
        self._found_at = self._changed_at = -math.inf
        self._frozen: FrozenCredentials | None = None
        self._check_at = 0.0
        self._refreshes = SingleFlight[str, FrozenCredentials | None]()
        self._searches = SingleFlight[str, None]()

    @property
    def cached(self) -> FrozenCredentials | None:
        """The current credentials, None if the caller must await `current`."""
        return self._frozen if time.monotonic() < self._check_at else None

    async def current(self, seconds: float | None = None) -> FrozenCredentials:
        """Return the current credentials.

        Raises:
            Unavailable: There are no credentials.
            TimeoutError: They have not arrived within `seconds`.
        """
        frozen = self.cached
        if frozen is None:
            frozen = await self._refreshes.join("", self._refresh_credentials, seconds)
        if frozen is None:
            raise Unavailable("The store's credentials are not available at the moment; try again.")
        return frozen

    @property
    def expires_at(self) -> datetime | None:
        """The expiry of the latest credentials, None if they have none or do not state it."""
        # botocore has no public attribute for it: `refresh_needed` says only whether it is near.
        expires_at: datetime | None = getattr(self._credentials, "_expiry_time", None)
        return expires_at

    async def renew(self, seconds: float | None = None) -> bool:
        """Find the credentials again after some were refused. Return whether they differ from the refused ones.

        The search runs at most every few seconds, and once for all waiting callers. Raises `TimeoutError` if it takes
        longer than the given seconds.
        """
        if "" in self._searches or time.monotonic() >= self._found_at + RETRY_SECONDS:
            await self._searches.join("", self._find_again, seconds)
        return time.monotonic() < self._changed_at + RETRY_SECONDS

    async def _find_again(self) -> None:
        self._found_at = time.monotonic()
        try:
            if self._find is not None:
                self._credentials = await asyncio.to_thread(self._find)
            self._set(await asyncio.to_thread(self._credentials.get_frozen_credentials))
            if self._changed_at >= self._found_at:
                logger.info("The store refused the credentials, and others were found.")
        except Exception as problem:
            # Providers raise the errors of their sources: of botocore, the network, or a helper program.
            logger.warning("The store refused the credentials, and loading them again failed: %s", problem)

    def _set(self, frozen: FrozenCredentials) -> None:
        if self._frozen is not None and _values(frozen) != _values(self._frozen):
            self._changed_at = time.monotonic()
        self._frozen, self._check_at = frozen, time.monotonic() + RECHECK_SECONDS

    async def _refresh_credentials(self) -> FrozenCredentials | None:
        """Return fresh credentials, or the old ones if that fails: they are valid for some minutes more."""
        try:
            self._set(await asyncio.to_thread(self._credentials.get_frozen_credentials))
        except Exception as problem:
            # Providers raise the errors of their sources: of botocore, the network, or a helper program.
            logger.warning("The credentials of the store cannot be refreshed: %s", problem)
            self._check_at = time.monotonic() + RETRY_SECONDS
        return self._frozen


def _values(frozen: FrozenCredentials) -> tuple[str, str, str | None]:
    return frozen.access_key, frozen.secret_key, frozen.token


class Signer:
    """The signing of requests. The parts that are equal within a second, or within a day, are computed once."""

    def __init__(self, region: str) -> None:
        #: The seconds by which the service's clock is ahead of this machine's, 0 below `MAX_SKEW_SECONDS`.
        self.skew = 0.0
        self._corrected_at = -math.inf
        self._region = region
        self._signing_key = _SigningKey("", "", region)
        self._credentials: FrozenCredentials | None = None
        self._second = -1
        self._templates: dict[tuple[str, str], _HeadTemplate] = {}

    def request_head(
        self, credentials: FrozenCredentials, host: str, target: str, body: bytes, now: float | None = None
    ) -> bytes:
        """Return the head of the request with all headers. `now` is in epoch seconds."""
        second = int(time.time() + self.skew if now is None else now)
        if second != self._second or credentials is not self._credentials:
            self._second, self._credentials = second, credentials
            self._templates.clear()
        key = host, target
        if key not in self._templates:
            self._templates[key] = self._template(credentials, host, target, second)
        template = self._templates[key]
        canonical = template.canonical.copy()
        canonical.update(sha256(body).hexdigest().encode())
        signature = template.mac.hexdigest(canonical.hexdigest().encode()).encode()
        return b"%b%b\r\ncontent-length: %d\r\n\r\n" % (template.head, signature, len(body))

    def correct_clock(self, date: bytes | None) -> bool:
        """Sign at the service's time from now on if it differs enough from the time of signing.

        Return whether it does. `date` is the Date header of the service's response.
        """
        try:
            service_time = parsedate_to_datetime((date or b"").decode("latin-1")).timestamp()
        except ValueError:
            return False
        skew = service_time - time.time()
        if abs(skew - self.skew) < MAX_SKEW_SECONDS:
            return False
        self.skew, self._corrected_at = skew, time.monotonic()
        logger.warning(
            "The clock of this machine is %d seconds %s that of the store, and requests are signed at the store's time "
            "from now on: synchronize the clock.",
            abs(skew),
            "behind" if skew > 0 else "ahead of",
        )
        return True

    @property
    def was_corrected_recently(self) -> bool:
        """Whether a refused request may have been signed before the latest correction."""
        return time.monotonic() < self._corrected_at + RETRY_SECONDS

    def _template(self, credentials: FrozenCredentials, host: str, target: str, second: int) -> "_HeadTemplate":
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(second))
        signed = {"content-type": CONTENT_TYPE, "host": host, "x-amz-date": stamp}
        if credentials.token:
            signed["x-amz-security-token"] = credentials.token
        signed["x-amz-target"] = target
        names = ";".join(signed)
        canonical = "".join([f"{name}:{value}\n" for name, value in signed.items()])
        scope = f"{stamp[:8]}/{self._region}/dynamodb/aws4_request"
        lines = "".join([f"{name}: {value}\r\n" for name, value in signed.items()])
        authorization = (
            f"AWS4-HMAC-SHA256 Credential={credentials.access_key}/{scope}, SignedHeaders={names}, Signature="
        )
        if any(sign in value for value in (*signed.values(), authorization) for sign in "\r\n\0"):
            raise ValueError("A header of the request would contain a line break or NUL.")
        if not self._signing_key.matches(credentials.secret_key, stamp[:8]):
            self._signing_key = _SigningKey(credentials.secret_key, stamp[:8], self._region)
        return _HeadTemplate(
            sha256(f"POST\n/\n\n{canonical}\n{names}\n".encode()),
            self._signing_key.mac.after(f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n".encode()),
            f"POST / HTTP/1.1\r\n{lines}authorization: {authorization}".encode(),
        )


class _SigningKey:
    """The signing key of a day."""

    def __init__(self, secret: str, day: str, region: str) -> None:
        self._secret_and_day = (secret, day)
        key = f"AWS4{secret}".encode()
        for part in (day, region, "dynamodb", "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        self.mac = PrehashedHmac(key)

    def matches(self, secret: str, day: str) -> bool:
        return self._secret_and_day == (secret, day)


class _HeadTemplate:
    """The common beginning of the requests of one second, host and target.

    `canonical` has hashed the beginning of the canonical request, and `mac` that of the string to sign. `head` is the
    request head up to the signature.
    """

    __slots__ = ("canonical", "head", "mac")

    def __init__(self, canonical: Any, mac: PrehashedHmac, head: bytes) -> None:
        self.canonical = canonical
        self.mac = mac
        self.head = head
