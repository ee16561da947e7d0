"""The validation of Redis URLs, before the first connection."""

from typing import Any
from urllib.parse import parse_qs, urlsplit

SCHEMES = ("redis", "rediss", "unix")
# The options of a URL: the database, the credentials and TLS. Timeouts and the number of connections are not options,
# because the gateway sets them.
OPTIONS = frozenset(("db", "username", "password", "client_name", "protocol"))
TLS_OPTIONS = frozenset(
    f"ssl_{name}"
    for name in (
        *("ca_certs", "ca_path", "ca_data", "certfile", "keyfile", "password"),
        *("cert_reqs", "check_hostname", "min_version", "ciphers", "include_verify_flags", "exclude_verify_flags"),
    )
)


def check_redis_url(url: str) -> None:
    """Raise `ValueError` for a URL that the client would not accept. The message contains no password."""
    # Imported late: the library takes a tenth of the time to start, and is only loaded if it is used.
    from redis.asyncio import ConnectionPool

    from datastore.redis.client import REDIS_AWAY

    scheme = url.partition("://")[0]
    if scheme not in SCHEMES or "://" not in url:
        raise ValueError("must be a URL of Redis that begins with redis://, rediss:// or unix://")
    try:
        parts = urlsplit(url)
        options = parse_qs(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        _ = parts.port
    except ValueError:
        raise ValueError("must be a URL of Redis: the part after the scheme is invalid") from None
    _check_location(scheme, parts.path, parts.hostname, parts.fragment)
    _check_options(scheme, options)
    try:
        pool: Any = ConnectionPool.from_url(url)
        connection = pool.make_connection()
        if scheme == "rediss":
            connection.ssl_context.get()
    except FileNotFoundError:
        raise ValueError("names a certificate file or key file that does not exist") from None
    except (ValueError, TypeError, *REDIS_AWAY):
        # The library's message may contain the password.
        raise ValueError("must be a URL of Redis: the value of an option is invalid") from None


def _check_location(scheme: str, path: str, host: str | None, fragment: str) -> None:
    if fragment:
        raise ValueError("must be a URL of Redis: write a # in a password as %23")
    if scheme == "unix":
        if not path:
            raise ValueError("must name the path of a socket after unix://")
        return
    if not host:
        raise ValueError("must name a host after the scheme")
    if "%" in host or any(character.isspace() for character in host):
        raise ValueError("must name a host that can be looked up")
    try:
        host.encode("idna")
    except UnicodeError:
        raise ValueError("must name a host that can be looked up") from None
    if path not in ("", "/") and not (path[1:].isascii() and path[1:].isdigit()):
        raise ValueError("must have the number of a database after the host, or nothing")


def _check_options(scheme: str, options: dict[str, list[str]]) -> None:
    known = OPTIONS | TLS_OPTIONS if scheme == "rediss" else OPTIONS
    for name, values in options.items():
        if name not in known:
            shown = name if name.isidentifier() and len(name) <= 40 else "one of its options"
            raise ValueError(f"has an option that is unknown or that the gateway sets itself: {shown}")
        if len(values) > 1:
            raise ValueError(f"has the option {name} twice")
    (number,) = options.get("db", ["0"])
    if not (number.isascii() and number.isdigit()):
        raise ValueError("must have a number as the option db")
    if options.get("protocol", ["3"]) not in (["2"], ["3"]):
        raise ValueError("must have 2 or 3 as the option protocol")
