"""Headers: request headers decoded on access, since few are read; media types; and the security headers of responses.

Media types are chosen by `Accept` and checked in `Content-Type`.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from server.operations.request import IncrementalFormat

# Sent with every response, see `SecurityHeaders`. A route may set its own value: GraphiQL has another policy, and
# pictures may be shown by other sites.
SECURITY_HEADERS = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
)

# Headers with options of an operation. Few requests have one.
_OPTIONS = frozenset({b"idempotency-key", b"x-explain", b"last-event-id"})
_BEARER = "Bearer "

# The limit of If-None-Match and Range. A client names few tags or ranges; a longer header is ignored.
MAX_CONDITION_CHARACTERS = 2048


Header = tuple[bytes, bytes]


def lines_of(headers: Iterable[Header]) -> bytes:
    """Encode headers as lines of a head."""
    return b"".join([b"%b: %b\r\n" % header for header in headers])


class Headers(Mapping[str, str]):
    """Headers by lower-case name, as in ASGI. Values of a repeated name are joined with commas.

    `raw` has the undecoded values, for lookups on every request.
    """

    __slots__ = ("raw",)

    def __init__(self, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        # ASGI only guarantees an iterable.
        pairs = pairs if isinstance(pairs, list) else list(pairs)
        self.raw: dict[bytes, bytes] = dict(pairs)
        if len(self.raw) != len(pairs):
            self.raw.clear()
            for name, value in pairs:
                self.raw[name] = self.raw[name] + b", " + value if name in self.raw else value

    def __getitem__(self, name: str) -> str:
        return self.raw[name.encode("latin-1")].decode("latin-1")

    def get(self, name: str, default: str | None = None) -> str | None:  # type: ignore[override]
        value = self.raw.get(name.encode("latin-1"))
        return default if value is None else value.decode("latin-1")

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.encode("latin-1") in self.raw

    def __iter__(self) -> Iterator[str]:
        return (name.decode("latin-1") for name in self.raw)

    def __len__(self) -> int:
        return len(self.raw)


class RequestHeaders(Headers):
    """The headers of a request to the endpoint, with the facts that every request needs."""

    __slots__ = ("accepted", "authorization", "has_json_content", "has_options", "token")

    def __init__(self, pairs: Iterable[Header]) -> None:
        super().__init__(pairs)
        raw = self.raw
        #: The responses that the client accepts.
        self.accepted = parse_accept(raw[b"accept"].decode("latin-1")) if b"accept" in raw else _ANYTHING
        #: Whether the content is JSON in UTF-8 without an encoding.
        self.has_json_content = b"content-encoding" not in raw and is_json(raw.get(b"content-type", b""))
        #: Whether there are headers with options of an operation.
        self.has_options = not _OPTIONS.isdisjoint(raw)
        self.authorization = self.get("authorization")
        authorization = self.authorization or ""
        #: The token of a header Authorization in the usual spelling.
        self.token = authorization[len(_BEARER) :] if authorization.startswith(_BEARER) else None


# --- Media types ------------------------------------------------------------------------------------------------------

JSON = "application/json"
GRAPHQL = "application/graphql-response+json"
EVENTS = "text/event-stream"
MULTIPART = "multipart/mixed"
_SUBSCRIPTION_SPEC = "1.0"
# The parameters that select a protocol in `multipart/mixed`, and the format of incremental responses. Without a
# parameter, a client means the present format.
_PROTOCOLS = ("incrementalspec", "deferspec", "subscriptionspec")
_FORMATS = {format.value: format for format in IncrementalFormat}

_UTF8 = ("utf-8", "utf8")
# Clients send some 100 bytes. Longer headers are not parsed: each element takes a microsecond or more.
MAX_ACCEPT_BYTES, MAX_ACCEPT_TYPES = 1024, 32
MAX_CONTENT_TYPE_BYTES = 256
MAX_MEDIA_PARAMETERS = 8


class AcceptedTypes(NamedTuple):
    """The accepted responses."""

    #: The media type of a JSON response; None if it is not accepted.
    single: str | None
    #: Whether server-sent events are accepted.
    events: bool = False
    #: Whether they have a higher weight than JSON.
    prefers_events: bool = False
    #: Whether multipart subscriptions are accepted, with a higher weight than events.
    multipart: bool = False
    #: How incremental responses are accepted; None if they are not.
    increments: "AcceptedIncrements | None" = None

    @property
    def streams(self) -> bool:
        """Whether a stream of results is accepted."""
        return self.events or self.multipart


class AcceptedIncrements(NamedTuple):
    """The media type of incremental responses, and their format."""

    media: str
    format: IncrementalFormat


def parse_accept(accept: str) -> AcceptedTypes:
    """Parse an `Accept` header (RFC 9110, 12.5.1) with its weights.

    Wildcards and an absent header mean plain JSON, which older clients expect. Events and multipart subscriptions must
    be accepted by name. A header of more than `MAX_ACCEPT_BYTES` or `MAX_ACCEPT_TYPES` accepts nothing.
    """
    return _parse_accept(accept) if len(accept) <= MAX_ACCEPT_BYTES else AcceptedTypes(None)


@lru_cache(maxsize=64)
def _parse_accept(accept: str) -> AcceptedTypes:
    if not accept.strip():
        return AcceptedTypes(JSON)
    ranges = [text for text in accept.split(",") if text.strip()]
    if len(ranges) > MAX_ACCEPT_TYPES:
        return AcceptedTypes(None)
    weighted = [*filter(None, map(_weighted, ranges))]
    weights = {media: weight for media, parameters, weight in weighted if _is_known(media, parameters)}
    anything = weights.get("application/*", weights.get("*/*", 0.0))
    plain = weights.get(JSON, anything)
    graphql = weights.get(GRAPHQL, 0.0 if plain > 0 else anything)
    events = weights.get(EVENTS, 0.0)
    single = GRAPHQL if graphql > 0 and graphql >= plain else JSON if plain > 0 else None
    multipart = weights.get(MULTIPART, 0.0)
    return AcceptedTypes(single, events > 0, events > max(graphql, plain), multipart > events, _increments(weighted))


_ANYTHING = parse_accept("")


def is_json(content_type: bytes) -> bool:
    """Return whether a `Content-Type` is JSON in UTF-8, within `MAX_CONTENT_TYPE_BYTES`."""
    return len(content_type) <= MAX_CONTENT_TYPE_BYTES and _is_json(content_type)


@lru_cache(maxsize=64)
def _is_json(content_type: bytes) -> bool:
    media, parameters = _parts(content_type.decode("latin-1"))
    return media == JSON and parameters.get("charset", "utf-8") in _UTF8


def _weighted(media_range: str) -> tuple[str, dict[str, str], float] | None:
    media, parameters = _parts(media_range)
    try:
        weight = float(parameters.get("q", "1"))
    except ValueError:
        return None
    return (media, parameters, weight) if 0 <= weight <= 1 and parameters.get("charset", "utf-8") in _UTF8 else None


def _is_known(media: str, parameters: dict[str, str]) -> bool:
    """Return whether a media type is not one of the other protocols in `multipart/mixed`, such as that of `@defer`."""
    return media != MULTIPART or parameters.get("subscriptionspec") == _SUBSCRIPTION_SPEC


def _increments(weighted: Iterable[tuple[str, dict[str, str], float]]) -> AcceptedIncrements | None:
    """Return the accepted form of incremental responses with the highest weight.

    Of equal weights, multipart and the present format come first.
    """
    found: list[tuple[float, bool, bool, AcceptedIncrements]] = []
    for media, parameters, weight in weighted:
        if weight > 0 and media in (MULTIPART, EVENTS) and (format := _format_of(parameters)) is not None:
            is_new = format is IncrementalFormat.IDS
            found.append((weight, media == MULTIPART, is_new, AcceptedIncrements(media, format)))
    return max(found)[-1] if found else None


def _format_of(parameters: dict[str, str]) -> IncrementalFormat | None:
    """Return the format that the parameters of a media type select; None for another protocol."""
    for name in _PROTOCOLS:
        if name in parameters:
            return _FORMATS.get(f"{name}={parameters[name]}")
    return IncrementalFormat.IDS


def _parts(value: str) -> tuple[str, dict[str, str]]:
    media, *rest = (part.strip() for part in value.lower().split(";", MAX_MEDIA_PARAMETERS))
    pairs = (part.partition("=") for part in rest)
    return media, {name.strip(): text.strip().strip('"') for name, _, text in pairs}
