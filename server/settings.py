"""The settings of a gateway. Each has a command line option or an environment variable, see docs/settings.md."""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import nan
from typing import Any, TypeVar
from urllib.parse import urlsplit

from datastore.redis.urls import check_redis_url
from datastore.search.factory import check_search_url
from datastore.secret_files import SecretUnusable, with_secrets
from server.admission.settings import VARIABLES as CAPACITY_VARIABLES
from server.admission.settings import Capacity, capacity_of
from server.documents.settings import VARIABLES as DOCUMENT_VARIABLES
from server.documents.settings import DocumentSettings, document_settings
from server.operations.explain import Explain
from server.security.origins import canonical_origins
from server.shutdown import MAX_GRACE_SECONDS

T = TypeVar("T")

AREAS = ("Downtown", "Midtown", "Harbor", "Old Town", "University", "Riverside")
CATEGORIES = ("Sneakers", "Food Trucks", "Street Music", "Cats", "Street Art")
LONGEST_LIST = 100
SHORTEST_SECRET = 32
SHORTEST_METRICS_TOKEN = 16
LOG_FORMATS = ("text", "json")
HTTP_PROFILES = ("2025", "draft2026")
STRIP_METADATA, KEEP_METADATA = "strip", "keep"
GRACE_SECONDS = 5.0
EVERY_ADDRESS = ("0.0.0.0", "::")
LOOPBACK = ("127.0.0.1", "localhost", "::1")
# https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
# The syntax of a bearer token: RFC 6750, 2.1.
_METRICS_TOKEN = re.compile(rf"[\w.~+/-]{{{SHORTEST_METRICS_TOKEN},}}=*", re.ASCII)
_ORIGIN = re.compile(r"https?://[^/\s]+", re.I)

# The fields of `Settings`, and their environment variables, by the type of the value.
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
    "http_profile": "GATEWAY_HTTP_PROFILE",
    "bus": "GATEWAY_BUS",
    "search_url": "GATEWAY_SEARCH_URL",
}
LISTS = {
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
LOG_FORMAT = "GATEWAY_LOG_FORMAT"
DRAIN = "GATEWAY_DRAIN_SECONDS"
WATCHDOG, SHORTEST_WATCHDOG_SECONDS = "GATEWAY_WATCHDOG_SECONDS", 1.0
SHARED_READS = "GATEWAY_SHARED_READS"
# The environment variables that this module reads.
VARIABLES = (
    *TEXTS.values(),
    *LISTS.values(),
    *SECONDS.values(),
    LOG_FORMAT,
    DRAIN,
    WATCHDOG,
    *DOCUMENT_VARIABLES,
    *CAPACITY_VARIABLES,
    SHARED_READS,
)


class Misconfigured(Exception):
    """Settings that are invalid or contradict each other. The message names the variable to set."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a gateway.

    Raises:
        Misconfigured: There is a JWKS URL without issuer and audience, an S3 URL without a bucket, or an invalid Redis
            or search URL.
    """

    #: Signs cursors and picture URLs, and tokens if there is no JWKS.
    secret: str
    #: Further secrets whose signatures are accepted, while `secret` changes.
    other_secrets: tuple[str, ...] = ()
    #: Encrypts the ids of photo users; None: `secret`.
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
    #: The earthquake feed to ingest every minute.
    ingest: str | None = None
    #: Hosts from which clients may have feeds ingested.
    ingest_hosts: tuple[str, ...] = ("earthquake.usgs.gov",)
    allowed_origins: tuple[str, ...] = ()
    deadline_seconds: float = 30.0
    #: Seconds between two reads of a table's stream; None: the default of the store.
    poll_interval: float | None = None
    #: The source of the live matches that this process polls: demo, sportmonks or none.
    matches: str | None = None
    #: Whether this process also runs the feed's pipeline and the statistics of earthquakes.
    feed_pipeline: bool = False
    #: Posts of authors with more followers are merged when feeds are read.
    fan_out_bound: int = 10_000
    #: A further port, and its address, for Prometheus without a token.
    metrics_port: int | None = None
    metrics_host: str = LOOPBACK[0]
    photo_bucket: str | None = None
    #: strip or keep: the treatment of the metadata in uploaded originals.
    photo_metadata: str = STRIP_METADATA
    #: A service with the API of S3, instead of AWS.
    s3_url: str | None = None
    #: The address of the gateway for clients; None: `url`.
    public_url: str | None = None
    documents: DocumentSettings = DocumentSettings()  # noqa: RUF009 - frozen
    #: A token for `/metrics`.
    metrics_token: str | None = None
    #: The edition of GraphQL over HTTP whose statuses are sent: 2025 or draft2026.
    http_profile: str = "2025"
    #: Seconds between heartbeats of a silent event stream, and between pings of a WebSocket.
    heartbeat_seconds: float = 12.0
    #: Seconds for which a process that shuts down still accepts connections; None: 0 on the loopback, otherwise 5.
    drain_seconds: float | None = None
    #: Seconds without a turn of the event loop after which the process ends; 0 disables it.
    watchdog_seconds: float = 30.0
    #: Whether spans are exported, as OpenTelemetry's own variables configure.
    traces: bool = False
    #: The callers that may request explanations: off, admin, user or anyone; None: admin, and user in a local demo.
    explain: str | None = None
    #: The limits of callers, addresses and the process.
    capacity: Capacity = Capacity()  # noqa: RUF009 - frozen
    #: The Redis through which processes share the reading of tables' streams; None: each process reads them itself.
    bus: str | None = None
    #: The OpenSearch with the search index; None: a file in the data directory.
    search_url: str | None = None
    #: Whether requests share point reads.
    shared_reads: bool = True
    #: Variables of the environment that begin as a setting and are none, for the operator.
    unknown_variables: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        required = {"GATEWAY_JWT_ISSUER": self.issuer, "GATEWAY_JWT_AUDIENCE": self.audience}
        missing = [name for name, value in required.items() if not value]
        if self.jwks_url is not None and missing:
            raise Misconfigured(
                f"Set {' and '.join(missing)} beside GATEWAY_JWKS_URL: "
                "without them tokens for other applications of that key set would be accepted."
            )
        if self.bus is not None:
            _check_url("GATEWAY_BUS", check_redis_url, self.bus)
        if self.search_url is not None:
            _check_url("GATEWAY_SEARCH_URL", check_search_url, self.search_url)
        if self.s3_url is not None and self.photo_bucket is None:
            raise Misconfigured("Set GATEWAY_PHOTO_BUCKET beside GATEWAY_S3_URL: it names the bucket for photos.")

    @property
    def loopback(self) -> bool:
        return self.host in LOOPBACK

    @property
    def grace_seconds(self) -> float:
        """The seconds for which a process serves after SIGTERM, so that load balancers notice that it is not ready."""
        if self.drain_seconds is not None:
            return self.drain_seconds
        return 0.0 if self.loopback else GRACE_SECONDS

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    @property
    def is_reachable(self) -> bool:
        """Whether `reached_at` is an address that clients can use: 0.0.0.0 and :: are not."""
        return self.public_url is not None or self.host not in EVERY_ADDRESS

    @property
    def reached_at(self) -> str:
        """The URL at which clients reach the gateway, without a slash at the end."""
        return (self.public_url or self.url).rstrip("/")

    @property
    def own_origins(self) -> tuple[str, ...]:
        """The origins of the gateway's own pages: that of `reached_at`, and on the loopback those of its names."""
        address = urlsplit(self.reached_at)
        names = ("127.0.0.1", "localhost", "[::1]") if self.loopback else ()
        return (f"{address.scheme}://{address.netloc}", *(f"http://{name}:{self.port}" for name in names))


def from_environment(environment: Mapping[str, str] = os.environ, **options: Any) -> dict[str, Any]:
    """Return the fields of `Settings` that the environment sets, by values or by files of secrets.

    Options that are not None take precedence. Raises `Misconfigured`.
    """
    try:
        environment = with_secrets(environment)
    except SecretUnusable as problem:
        raise Misconfigured(str(problem)) from None
    found: dict[str, Any] = {field: environment[name] for field, name in TEXTS.items() if environment.get(name)}
    found |= {field: _list(name, environment[name]) for field, name in LISTS.items() if environment.get(name)}
    found |= {field: _positive(name, environment[name]) for field, name in SECONDS.items() if environment.get(name)}
    if environment.get(DRAIN):
        found["drain_seconds"] = _grace(environment[DRAIN])
    if environment.get(WATCHDOG):
        found["watchdog_seconds"] = _watchdog(environment[WATCHDOG])
    log_format_of(environment)
    found["traces"] = _sends_traces(environment)
    found["shared_reads"] = _is_on(SHARED_READS, environment.get(SHARED_READS) or "on")
    if any(environment.get(name) for name in DOCUMENT_VARIABLES):
        found["documents"] = _read(document_settings, environment)
    capacity = _read(capacity_of, environment)
    if capacity != Capacity():
        found["capacity"] = capacity
    found |= {field: value for field, value in options.items() if value is not None}
    _check(found)
    return found


def log_format_of(environment: Mapping[str, str]) -> str:
    """Return the format of the log that the environment sets. Raises `Misconfigured`."""
    log_format = environment.get(LOG_FORMAT) or LOG_FORMATS[0]
    if log_format not in LOG_FORMATS:
        raise Misconfigured(f"{LOG_FORMAT} must be text or json, not {log_format!r}.")
    return log_format


def _read(read: Callable[[Mapping[str, str]], T], environment: Mapping[str, str]) -> T:
    """Return settings of another package. Raise `Misconfigured` for its `ValueError`."""
    try:
        return read(environment)
    except ValueError as problem:
        raise Misconfigured(str(problem)) from None


def _check(found: Mapping[str, Any]) -> None:
    """Raise `Misconfigured` for an invalid value."""
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
    """Return whether OpenTelemetry's variables name an endpoint for traces."""
    is_disabled = environment.get("OTEL_SDK_DISABLED", "").lower() == "true"
    endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    has_endpoint = any(environment.get(name) for name in endpoints)
    return has_endpoint and not is_disabled and environment.get("OTEL_TRACES_EXPORTER", "otlp") == "otlp"


def _is_on(name: str, text: str) -> bool:
    if text not in ("on", "off"):
        raise Misconfigured(f"{name} must be on or off, not {text!r}.")
    return text == "on"


def _is_address(text: str) -> bool:
    """Return whether the text is an http(s) URL to which a path can be appended."""
    try:
        url = urlsplit(text)
        return (
            url.scheme in ("http", "https") and bool(url.hostname) and not (url.query or url.fragment or url.username)
        )
    except ValueError:
        return False


def _list(name: str, text: str) -> tuple[str, ...]:
    parts = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not parts:
        raise Misconfigured(f"{name} must contain at least one value; separate values with commas.")
    if len(parts) > LONGEST_LIST:
        raise Misconfigured(f"{name} may contain at most {LONGEST_LIST} values.")
    return parts


def _number(text: str) -> float:
    """Return the number in a text; NaN, which is in no range, if there is none."""
    try:
        return float(text)
    except ValueError:
        return nan


def _grace(text: str) -> float:
    value = _number(text)
    if not 0 <= value <= MAX_GRACE_SECONDS:
        raise Misconfigured(f"{DRAIN} must be a number of seconds from 0 to {MAX_GRACE_SECONDS:g}, not {text!r}.")
    return value


def _watchdog(text: str) -> float:
    value = _number(text)
    if value != 0 and not SHORTEST_WATCHDOG_SECONDS <= value < float("inf"):
        raise Misconfigured(
            f"{WATCHDOG} must be 0, or a number of seconds from {SHORTEST_WATCHDOG_SECONDS:g}, not {text!r}."
        )
    return value


def _positive(name: str, text: str) -> float:
    value = _number(text)
    if not 0 < value < float("inf"):
        raise Misconfigured(f"{name} must be a number of seconds above 0, not {text!r}.")
    return value


def _check_url(name: str, check: Callable[[str], object], url: str) -> None:
    try:
        check(url)
    except ValueError as problem:
        raise Misconfigured(f"{name} {problem}.") from None
