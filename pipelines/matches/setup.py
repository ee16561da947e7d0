"""The setup of the pipeline from the environment: the provider, and the delivery of pushes."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from datastore.secret_files import SecretUnusable, secret_in
from pipelines.demo.matches import DemoProvider
from pipelines.matches.providers.provider import Provider
from pipelines.matches.providers.sportmonks import BASE_URL
from pipelines.matches.push.apns_credentials import PRODUCTION, ApnsCredentials
from pipelines.matches.push.push_service import LoggedPushService, PushService

if TYPE_CHECKING:
    import aiohttp

CREDENTIAL_VARIABLES = ("APNS_KEY_FILE", "APNS_KEY_ID", "APNS_TEAM_ID", "APNS_BUNDLE_ID")
VARIABLES = ("SPORTMONKS_API_TOKEN", "SPORTMONKS_URL", *CREDENTIAL_VARIABLES, "APNS_URL")


class MatchSource(StrEnum):
    """The source of the matches."""

    NONE = "none"  # this process does not poll
    DEMO = "demo"
    SPORTMONKS = "sportmonks"


class SetupError(ValueError):
    """The environment lacks a setting; the message names it."""


@dataclass(frozen=True, slots=True)
class PipelineSetup:
    """A valid setup: a source with its token, and the credentials for APNs."""

    source: MatchSource
    sportmonks_token: str = field(default="", repr=False)
    sportmonks_url: str = BASE_URL
    #: None: notifications are logged and not sent.
    apns: ApnsCredentials | None = None

    def provider(self, open_session: Callable[[], "aiohttp.ClientSession"], now: Callable[[], datetime]) -> Provider:
        if self.source is MatchSource.SPORTMONKS:
            # Imported late: aiohttp is only loaded if a service is asked.
            from pipelines.matches.providers.sportmonks.http import SportMonksHttp
            from pipelines.matches.providers.sportmonks.provider import SportMonks

            http = SportMonksHttp(open_session(), self.sportmonks_token, base_url=self.sportmonks_url, now=now)
            return SportMonks(http, now=now)
        return DemoProvider(now)

    def delivery(self, now: Callable[[], datetime]) -> PushService:
        if self.apns is None:
            return LoggedPushService()
        # Imported late: httpx is only loaded if notifications are sent.
        from pipelines.matches.push.apns import ApnsPushService

        return ApnsPushService(self.apns, now)


def pipeline_setup(source: MatchSource, environment: Mapping[str, str] = os.environ) -> PipelineSetup:
    """Read the setup from the environment.

    Raises: SetupError for a missing setting, CredentialsError for an invalid APNs key.
    """
    try:
        token = secret_in(environment, "SPORTMONKS_API_TOKEN") or ""
    except SecretUnusable as problem:
        raise SetupError(str(problem)) from None
    if source is MatchSource.SPORTMONKS and not token:
        raise SetupError("Set SPORTMONKS_API_TOKEN: the SportMonks Cricket API requires a token.")
    url = environment.get("SPORTMONKS_URL") or BASE_URL
    return PipelineSetup(source, token, url, _apns(environment))


def _apns(environment: Mapping[str, str]) -> ApnsCredentials | None:
    missing = [name for name in CREDENTIAL_VARIABLES if not environment.get(name)]
    if len(missing) == len(CREDENTIAL_VARIABLES):
        return None
    if missing:
        raise SetupError(f"Set {' and '.join(missing)} too, or none of {', '.join(CREDENTIAL_VARIABLES)}.")
    path = Path(environment["APNS_KEY_FILE"])
    try:
        key = path.read_text()
    except (OSError, UnicodeDecodeError) as problem:
        raise SetupError(f"APNS_KEY_FILE: {path} cannot be read: {problem}") from None
    _, key_id, team_id, bundle_id = (environment[name] for name in CREDENTIAL_VARIABLES)
    return ApnsCredentials(key, key_id, team_id, bundle_id, environment.get("APNS_URL") or PRODUCTION)
