"""Request headers that are decoded on access, since few of them are read; and the security headers of responses."""

from collections.abc import Iterable, Iterator, Mapping

# On every answer, see `SecurityHeaders`. A route that says one of these otherwise (GraphiQL its policy, pictures who
# may show them) is left its own.
SECURITY_HEADERS = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
)

# Of an If-None-Match or a Range. A client names one tag or part, or some; the answer to a longer one is sent whole.
MOST_CONDITION_CHARACTERS = 2048


def lines_of(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Encode headers as lines of a head."""
    return b"".join([b"%b: %b\r\n" % header for header in headers])


class Headers(Mapping[str, str]):
    """Headers by lower-case name, as in ASGI. Values of one name are joined to one list.

    `raw` has the undecoded values, for lookups on every request.
    """

    __slots__ = ("raw",)

    def __init__(self, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        # ASGI promises no more than that they can be gone through.
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
