"""Request headers that are decoded on access, since few of them are read; and the security headers of responses."""

from collections.abc import Iterable, Iterator, Mapping

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

# The limit of If-None-Match and Range. A client names few tags or ranges; a longer header is ignored.
MAX_CONDITION_CHARACTERS = 2048


def lines_of(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
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
