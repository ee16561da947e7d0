"""Addresses of Redis: what they may say, told before anything is asked there."""

from typing import Any
from urllib.parse import parse_qs, urlsplit

from datastore.redis.failures import REDIS_AWAY

SCHEMES = ("redis", "rediss", "unix")
# Where it is, who asks, and how TLS is spoken. How patient the gateway is, and how often it connects, it says itself.
OPTIONS = frozenset(("db", "username", "password", "client_name", "protocol"))
TLS_OPTIONS = frozenset(
    f"ssl_{name}"
    for name in (
        *("ca_certs", "ca_path", "ca_data", "certfile", "keyfile", "password"),
        *("cert_reqs", "check_hostname", "min_version", "ciphers", "include_verify_flags", "exclude_verify_flags"),
    )
)


def check_redis_url(url: str) -> None:
    """Raises `ValueError` for a URL that the client would not take as it stands; no password is in the message."""
    from redis.asyncio import ConnectionPool  # for those only who use it

    scheme = url.partition("://")[0]
    if scheme not in SCHEMES or "://" not in url:
        raise ValueError("must be a URL of Redis that begins with redis://, rediss:// or unix://")
    try:
        parts = urlsplit(url)
        options = parse_qs(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        _ = parts.port
    except ValueError:
        raise ValueError("must be a URL of Redis: what stands behind the scheme is none") from None
    _check_location(scheme, parts.path, parts.hostname, parts.fragment)
    _check_options(scheme, options)
    try:
        pool: Any = ConnectionPool.from_url(url)
        connection = pool.make_connection()
        if scheme == "rediss":
            connection.ssl_context.get()
    except FileNotFoundError:
        raise ValueError("names a file of certificates or a key that is not there") from None
    except (ValueError, TypeError, *REDIS_AWAY):
        # What the library says may tell what was given.
        raise ValueError("must be a URL of Redis: the value of an option cannot be used") from None


def _check_location(scheme: str, path: str, host: str | None, fragment: str) -> None:
    if fragment:
        raise ValueError("must be a URL of Redis: a # in a password is written %23")
    if scheme == "unix":
        if not path:
            raise ValueError("must name the path of a socket behind unix://")
        return
    if not host:
        raise ValueError("must name a host behind the scheme")
    if "%" in host or any(character.isspace() for character in host):
        raise ValueError("must name a host that can be looked up")
    try:
        host.encode("idna")
    except UnicodeError:
        raise ValueError("must name a host that can be looked up") from None
    if path not in ("", "/") and not (path[1:].isascii() and path[1:].isdigit()):
        raise ValueError("must have the number of a database behind the host, or nothing")


def _check_options(scheme: str, options: dict[str, list[str]]) -> None:
    known = OPTIONS | TLS_OPTIONS if scheme == "rediss" else OPTIONS
    for name, values in options.items():
        if name not in known:
            shown = name if name.isidentifier() and len(name) <= 40 else "one of its options"
            raise ValueError(f"has an option that is not known or not open to choice here: {shown}")
        if len(values) > 1:
            raise ValueError(f"says {name} twice")
    (number,) = options.get("db", ["0"])
    if not (number.isascii() and number.isdigit()):
        raise ValueError("must have a number as db")
    if options.get("protocol", ["3"]) not in (["2"], ["3"]):
        raise ValueError("must have 2 or 3 as protocol")
