"""How a gateway is set up. Every field has a command line option or an environment variable (see the README)."""

import os
import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from datastore.private_files import FolderUnusable, open_private_folder, unusable_folder
from datastore.redis.urls import check_redis_url
from datastore.search.factory import check_search_url
from server.admission.settings import VARIABLES as CAPACITY_VARIABLES
from server.admission.settings import Capacity, capacity_of
from server.documents.settings import VARIABLES as DOCUMENT_VARIABLES
from server.documents.settings import DocumentSettings, document_settings
from server.operations.explain import Explain
from server.security.origins import canonical_origins
from server.shutdown import MOST_GRACE_SECONDS

AREAS = ("Downtown", "Midtown", "Harbor", "Old Town", "University", "Riverside")
CATEGORIES = ("Sneakers", "Food Trucks", "Street Music", "Cats", "Street Art")
SHORTEST_SECRET = 32
SHORTEST_METRICS_TOKEN = 16
LOG_FORMATS = ("text", "json")
HTTP_PROFILES = ("2025", "draft2026")
STRIP_METADATA, KEEP_METADATA = "strip", "keep"
SECRET_TRIES, SECRET_PAUSE_SECONDS = 20, 0.05
GRACE_SECONDS = 5.0
EVERY_ADDRESS = ("0.0.0.0", "::")
LOOPBACK = ("127.0.0.1", "localhost", "::1")
# https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
# What may stand behind Bearer: RFC 6750, 2.1.
_METRICS_TOKEN = re.compile(rf"[\w.~+/-]{{{SHORTEST_METRICS_TOKEN},}}=*", re.ASCII)
_ORIGIN = re.compile(r"https?://[^/\s]+", re.I)

TEXTS = {
    "secret": "GATEWAY_SECRET",
    "user_id_secret": "GATEWAY_USER_ID_SECRET",
    "jwks_url": "GATEWAY_JWKS_URL",
    "issuer": "GATEWAY_JWT_ISSUER",
    "audience": "GATEWAY_JWT_AUDIENCE",
    "role_claim": "GATEWAY_ROLE_CLAIM",
    "ingest": "GATEWAY_INGEST",
    "matches": "GATEWAY_MATCHES",
    "photo_bucket": "GATEWAY_PHOTO_BUCKET",
    "photo_metadata": "GATEWAY_PHOTO_METADATA",
    "s3_url": "GATEWAY_S3_URL",
    "public_url": "GATEWAY_PUBLIC_URL",
    "explain": "GATEWAY_EXPLAIN",
    "metrics_token": "GATEWAY_METRICS_TOKEN",
    "log_format": "GATEWAY_LOG_FORMAT",
    "http_profile": "GATEWAY_HTTP_PROFILE",
    "bus": "GATEWAY_BUS",
    "search_url": "GATEWAY_SEARCH_URL",
}
LIST_HEADERS = {
    "other_secrets": "GATEWAY_OTHER_SECRETS",
    "areas": "GATEWAY_AREAS",
    "categories": "GATEWAY_CATEGORIES",
    "ingest_hosts": "GATEWAY_INGEST_HOSTS",
    "allowed_origins": "GATEWAY_ALLOWED_ORIGINS",
}
SECONDS = {
    "deadline_seconds": "GATEWAY_DEADLINE_SECONDS",
    "poll_interval": "GATEWAY_POLL_INTERVAL_SECONDS",
    "heartbeat_seconds": "GATEWAY_HEARTBEAT_SECONDS",
}
DRAIN = "GATEWAY_DRAIN_SECONDS"
WATCHDOG, SHORTEST_WATCHDOG_SECONDS = "GATEWAY_WATCHDOG_SECONDS", 1.0
SHARED_READS = "GATEWAY_SHARED_READS"
# The environment variables that this module reads.
VARIABLES = (
    *TEXTS.values(),
    *LIST_HEADERS.values(),
    *SECONDS.values(),
    DRAIN,
    WATCHDOG,
    *DOCUMENT_VARIABLES,
    *CAPACITY_VARIABLES,
    SHARED_READS,
)


class Misconfigured(Exception):
    """The settings do not go together; the message says what to set."""


@dataclass(frozen=True, slots=True)
class Settings:
    """`secret` signs cursors, and tokens when there is no JWKS; what was made with one of `other_secrets` counts too.
    `user_id_secret` is what ids of photo users are made with, `secret` if nothing is said.

    `ingest` names the feed to ingest every minute, `matches` the source of matches that this process polls: demo or
    sportmonks. `feed_pipeline` tells whether it handles the feed's changes too, and `metrics_host` and `metrics_port`
    where it answers Prometheus besides.

    `photo_bucket` is where photos are kept, in S3 or, at `s3_url`, in a service that speaks its API. `public_url` is
    where clients reach the gateway: the listening URL if nothing is said. `documents` tells which documents are known.
    `photo_metadata` is "strip" or "keep": what becomes of the metadata in uploaded originals.

    `metrics_token` may be borne to see `/metrics`; `log_format` is text or json; `traces` tells whether spans are sent
    to where OpenTelemetry's own variables say.

    `explain` is who may have operations explained (off, admin, user, anyone): without it admins, or in a demo on this
    machine everybody with a token.

    `capacity` is how much callers, addresses and the process may have at once. `bus` is the URL of the Redis by which
    processes share the reading of tables' streams: without one, each reads them for itself. `search_url` is the URL of
    the OpenSearch that holds the search index: without one the index is a file beside the local data.

    `shared_reads` tells whether requests are served by each other's point reads.

    `http_profile` names the edition of GraphQL over HTTP whose statuses are sent; streams of server-sent events give a
    sign of life every `heartbeat_seconds`, and WebSockets are pinged. A process that is to end is not ready, and goes
    on taking connections, for `drain_seconds`: none on this machine alone, else 5 if nothing is said. A process whose
    event loop has not run for `watchdog_seconds` ends itself; 0 is never.

    Raises `Misconfigured` for a JWKS without an issuer and an audience, and for an `s3_url` without a bucket.
    """

    secret: str
    other_secrets: tuple[str, ...] = ()
    user_id_secret: str | None = None
    host: str = "127.0.0.1"
    port: int = 8000
    demo: bool = False
    jwks_url: str | None = None
    issuer: str | None = None
    audience: str | None = None
    role_claim: str = "role"
    areas: tuple[str, ...] = AREAS
    categories: tuple[str, ...] = CATEGORIES
    ingest: str | None = None
    ingest_hosts: tuple[str, ...] = ("earthquake.usgs.gov",)
    allowed_origins: tuple[str, ...] = ()
    deadline_seconds: float = 30.0
    poll_interval: float | None = None
    matches: str | None = None
    feed_pipeline: bool = False
    fan_out_bound: int = 10_000
    metrics_port: int | None = None
    metrics_host: str = LOOPBACK[0]
    photo_bucket: str | None = None
    photo_metadata: str = STRIP_METADATA
    s3_url: str | None = None
    public_url: str | None = None
    documents: DocumentSettings = DocumentSettings()  # noqa: RUF009 - frozen
    metrics_token: str | None = None
    log_format: str = "text"
    http_profile: str = "2025"
    heartbeat_seconds: float = 12.0
    drain_seconds: float | None = None
    watchdog_seconds: float = 30.0
    traces: bool = False
    explain: str | None = None
    capacity: Capacity = Capacity()  # noqa: RUF009 - frozen
    bus: str | None = None
    search_url: str | None = None
    shared_reads: bool = True

    def __post_init__(self) -> None:
        wanted = {"GATEWAY_JWT_ISSUER": self.issuer, "GATEWAY_JWT_AUDIENCE": self.audience}
        missing = [name for name, value in wanted.items() if not value]
        if self.jwks_url is not None and missing:
            raise Misconfigured(
                f"Set {' and '.join(missing)} beside GATEWAY_JWKS_URL: "
                "without them a token for any other app of that key set would count here."
            )
        if self.bus is not None:
            _check_bus(self.bus)
        if self.search_url is not None:
            _check_search(self.search_url)
        if self.s3_url is not None and self.photo_bucket is None:
            raise Misconfigured("Set GATEWAY_PHOTO_BUCKET beside GATEWAY_S3_URL: it is where photos are kept there.")

    @property
    def loopback(self) -> bool:
        return self.host in LOOPBACK

    @property
    def grace_seconds(self) -> float:
        """For load balancers to notice that the process is not ready."""
        if self.drain_seconds is not None:
            return self.drain_seconds
        return 0.0 if self.loopback else GRACE_SECONDS

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    @property
    def says_where(self) -> bool:
        """Whether clients can reach `reached_at`: an address that stands for all of a machine's is none to go to."""
        return self.public_url is not None or self.host not in EVERY_ADDRESS

    @property
    def reached_at(self) -> str:
        """Where clients reach the gateway, without a slash in the end."""
        return (self.public_url or self.url).rstrip("/")


def from_environment(environment: Mapping[str, str] = os.environ, **given: Any) -> dict[str, Any]:
    """The settings that the environment names, and over them those that are given and not None."""
    found: dict[str, Any] = {field: environment[name] for field, name in TEXTS.items() if environment.get(name)}
    found |= {field: _list(name, environment[name]) for field, name in LIST_HEADERS.items() if environment.get(name)}
    found |= {field: _positive(name, environment[name]) for field, name in SECONDS.items() if environment.get(name)}
    if environment.get(DRAIN):
        found["drain_seconds"] = _grace(environment[DRAIN])
    if environment.get(WATCHDOG):
        found["watchdog_seconds"] = _watchdog(environment[WATCHDOG])
    found["traces"] = _sends_traces(environment)
    found["shared_reads"] = _is_on(SHARED_READS, environment.get(SHARED_READS) or "on")
    if any(environment.get(name) for name in DOCUMENT_VARIABLES):
        found["documents"] = _documents(environment)
    capacity = _capacity(environment)
    if capacity != Capacity():
        found["capacity"] = capacity
    found |= {field: value for field, value in given.items() if value is not None}
    _check(found)
    return found


def _documents(environment: Mapping[str, str]) -> DocumentSettings:
    try:
        return document_settings(environment)
    except ValueError as problem:
        raise Misconfigured(str(problem)) from None


def _capacity(environment: Mapping[str, str]) -> Capacity:
    try:
        return capacity_of(environment)
    except ValueError as problem:
        raise Misconfigured(str(problem)) from None


def _check(found: Mapping[str, Any]) -> None:
    _check_secrets(found)
    if not found.get("jwks_url", "https://").startswith(("http://", "https://")):
        raise Misconfigured(f"GATEWAY_JWKS_URL must be an http(s) URL, not {found['jwks_url']!r}.")
    if found.get("explain", "off") not in list(Explain):
        raise Misconfigured(f"GATEWAY_EXPLAIN must be one of {', '.join(Explain)}, not {found['explain']!r}.")
    for origin in found.get("allowed_origins", ()):
        if not _ORIGIN.fullmatch(origin) or not canonical_origins((origin,)):
            raise Misconfigured(f"GATEWAY_ALLOWED_ORIGINS: {origin!r} is no origin such as https://app.example.com.")
    for field, name in {"s3_url": "GATEWAY_S3_URL", "public_url": "GATEWAY_PUBLIC_URL"}.items():
        if field in found and not _is_address(found[field]):
            raise Misconfigured(
                f"{name} must be an http(s) URL such as https://photos.example.com, not {found[field]!r}."
            )
    if "metrics_token" in found and not _METRICS_TOKEN.fullmatch(found["metrics_token"]):
        raise Misconfigured(
            f"GATEWAY_METRICS_TOKEN must have at least {SHORTEST_METRICS_TOKEN} letters, digits, -, ., _, ~, + or /."
        )
    if found.get("log_format", "text") not in LOG_FORMATS:
        raise Misconfigured(f"GATEWAY_LOG_FORMAT must be text or json, not {found['log_format']!r}.")
    if found.get("http_profile", "2025") not in HTTP_PROFILES:
        raise Misconfigured(f"GATEWAY_HTTP_PROFILE must be 2025 or draft2026, not {found['http_profile']!r}.")
    if found.get("photo_metadata", STRIP_METADATA) not in (STRIP_METADATA, KEEP_METADATA):
        raise Misconfigured(f"GATEWAY_PHOTO_METADATA must be strip or keep, not {found['photo_metadata']!r}.")
    if not _BUCKET.fullmatch(found.get("photo_bucket", "bucket")):
        raise Misconfigured(f"GATEWAY_PHOTO_BUCKET must be the name of a bucket, not {found['photo_bucket']!r}.")


def _check_secrets(found: Mapping[str, Any]) -> None:
    named = {"GATEWAY_SECRET": found.get("secret"), "GATEWAY_USER_ID_SECRET": found.get("user_id_secret")}
    for name, secret in named.items():
        if secret is not None and len(secret) < SHORTEST_SECRET:
            raise Misconfigured(f"{name} must have at least {SHORTEST_SECRET} characters.")
    if any(len(secret) < SHORTEST_SECRET for secret in found.get("other_secrets", ())):
        raise Misconfigured(f"Each of GATEWAY_OTHER_SECRETS must have at least {SHORTEST_SECRET} characters.")


def _sends_traces(environment: Mapping[str, str]) -> bool:
    """Whether OpenTelemetry's variables name a place to send traces to."""
    switched_off = environment.get("OTEL_SDK_DISABLED", "").lower() == "true"
    places = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    wanted = any(environment.get(name) for name in places)
    return wanted and not switched_off and environment.get("OTEL_TRACES_EXPORTER", "otlp") == "otlp"


def _is_on(name: str, text: str) -> bool:
    if text not in ("on", "off"):
        raise Misconfigured(f"{name} must be on or off, not {text!r}.")
    return text == "on"


def _is_address(text: str) -> bool:
    """Whether paths can be put behind it."""
    try:
        url = urlsplit(text)
        return (
            url.scheme in ("http", "https") and bool(url.hostname) and not (url.query or url.fragment or url.username)
        )
    except ValueError:
        return False


def local_secret(data_dir: Path) -> str:
    """The secret of this machine's local gateways, made at first use and readable by its owner only."""
    path = data_dir / "secret"
    try:
        open_private_folder(data_dir)
        return _made_secret(path) or _kept_secret(path)
    except FolderUnusable as problem:
        raise Misconfigured(str(problem)) from None
    except OSError as problem:
        raise Misconfigured(str(unusable_folder(data_dir, problem))) from None


def _made_secret(path: Path) -> str | None:
    """A new secret, unless there is one."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return None
    made = secrets.token_urlsafe(48)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(made)
    except OSError:
        path.unlink()  # a part of a secret would be in the way of a whole one
        raise
    return made


def _kept_secret(path: Path) -> str:
    """The secret in the file; another process may be writing it at this moment."""
    for _ in range(SECRET_TRIES):
        kept = path.read_text(errors="replace").strip()
        if len(kept) >= SHORTEST_SECRET:
            return kept
        time.sleep(SECRET_PAUSE_SECONDS)
    raise Misconfigured(f"{path} holds no secret of {SHORTEST_SECRET} characters: delete it, and a new one is made.")


def _list(name: str, text: str) -> tuple[str, ...]:
    parts = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not parts:
        raise Misconfigured(f"{name} must name at least one, separated by commas.")
    return parts


def _grace(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= MOST_GRACE_SECONDS:
        raise Misconfigured(f"{DRAIN} must be a number of seconds from 0 to {MOST_GRACE_SECONDS:g}, not {text!r}.")
    return value


def _watchdog(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if value != 0 and not SHORTEST_WATCHDOG_SECONDS <= value < float("inf"):
        raise Misconfigured(
            f"{WATCHDOG} must be 0, or a number of seconds from {SHORTEST_WATCHDOG_SECONDS:g}, not {text!r}."
        )
    return value


def _positive(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise Misconfigured(f"{name} must be a number of seconds above 0, not {text!r}.")
    return value


def _check_search(url: str) -> None:
    try:
        check_search_url(url)
    except ValueError as problem:
        raise Misconfigured(f"GATEWAY_SEARCH_URL {problem}.") from None


def _check_bus(url: str) -> None:
    try:
        check_redis_url(url)
    except ValueError as problem:
        raise Misconfigured(f"GATEWAY_BUS {problem}.") from None
