"""Credentials for Apple's push service: a signing key, and the provider tokens signed with it."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import urlsplit

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

PRODUCTION = "https://api.push.apple.com"
# APNs accepts tokens for up to an hour and rejects renewals more often than every 20 minutes.
TOKEN_SECONDS = 50 * 60
FORCED_PAUSE_SECONDS = 60
_APPLE_ID = re.compile(r"[A-Z0-9]{10}")
_BUNDLE = re.compile(r"[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*")


class CredentialsError(ValueError):
    """Invalid credentials. The message names the field and never shows the key."""


@dataclass(frozen=True, slots=True)
class ApnsCredentials:
    """A signing key and its ids. `key` is the PEM text of the .p8 file.

    Raises: CredentialsError for a malformed field.
    """

    key: str = field(repr=False)
    key_id: str
    team_id: str
    bundle_id: str
    url: str = PRODUCTION

    def __post_init__(self) -> None:
        for name in ("key_id", "team_id"):
            if not _APPLE_ID.fullmatch(getattr(self, name)):
                raise CredentialsError(f"The APNs {name} must be ten capital letters and digits.")
        if not _BUNDLE.fullmatch(self.bundle_id):
            raise CredentialsError("The APNs bundle_id must be an app's bundle id, such as com.example.app.")
        if urlsplit(self.url).scheme != "https" or not urlsplit(self.url).hostname:
            raise CredentialsError(f"The APNs url must begin with https://, as {PRODUCTION} does.")
        _check_key(self.key)

    @property
    def topic(self) -> str:
        return f"{self.bundle_id}.push-type.liveactivity"


def _check_key(pem: str) -> None:
    try:
        key = load_pem_private_key(pem.encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise CredentialsError("The APNs key must be the PEM text of an unencrypted .p8 file.") from None
    if not isinstance(key, EllipticCurvePrivateKey) or not isinstance(key.curve, SECP256R1):
        raise CredentialsError("The APNs key must be an elliptic curve key (P-256), as Apple issues them.")


class ProviderToken:
    """The token of every request: signed again after 50 minutes, or when APNs reports that it has expired."""

    def __init__(self, credentials: ApnsCredentials, now: Callable[[], datetime]) -> None:
        self._credentials = credentials
        self._now = now
        self._token = ""
        self._issued_at = float("-inf")
        self._forced_at = float("-inf")

    def current(self) -> str:
        moment = self._now().timestamp()
        if moment - self._issued_at >= TOKEN_SECONDS:
            self._issue(moment)
        return self._token

    def renew(self, refused: str) -> None:
        """Sign a new token if `refused` is still in use, at most once a minute."""
        moment = self._now().timestamp()
        if refused == self._token and moment - self._forced_at >= FORCED_PAUSE_SECONDS:
            self._forced_at = moment
            self._issue(moment)

    def _issue(self, moment: float) -> None:
        credentials = self._credentials
        claims = {"iss": credentials.team_id, "iat": int(moment)}
        self._token = jwt.encode(claims, credentials.key, algorithm="ES256", headers={"kid": credentials.key_id})
        self._issued_at = moment
