"""The network address of a client. Forwarding headers are accepted from trusted proxies only."""

import ipaddress
from collections.abc import Collection
from functools import lru_cache
from typing import Any

from starlette.middleware import Middleware
from starlette.types import Scope
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

# A provider assigns at least a /64 to a customer, which can use any address in it.
IPV6_PREFIX = 64
# The last bytes of an X-Forwarded-For value are parsed: they hold more addresses than a chain of proxies has.
MAX_FORWARDED_BYTES = 1024


def behind_proxies(trusted: Collection[str]) -> list[Middleware]:
    """Return middleware that sets a scope's address and scheme from X-Forwarded-For and X-Forwarded-Proto.

    `trusted` are networks (CIDR). The rightmost address outside of these networks is used: a client can forge the
    addresses to the left of it.
    """
    return [Middleware(_ProxyHeaders, trusted_hosts=list(trusted))] if trusted else []


class _ProxyHeaders(ProxyHeadersMiddleware):
    """uvicorn's middleware, with a bound on the forwarded addresses that it parses."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = scope.get("headers", ())
        if any(len(value) > MAX_FORWARDED_BYTES and name == b"x-forwarded-for" for name, value in headers):
            scope["headers"] = [
                (name, _last(value) if name == b"x-forwarded-for" else value) for name, value in headers
            ]
        await super().__call__(scope, receive, send)


def _last(addresses: bytes) -> bytes:
    """Return the complete addresses within the last bytes of a list."""
    return addresses[-MAX_FORWARDED_BYTES:].partition(b",")[2]


def address_in(scope: Scope) -> str:
    """Return the client's address from the scope, after `behind_proxies`; empty on a Unix socket."""
    client = scope["client"]
    return client[0] if client else ""


@lru_cache(maxsize=4096)
def network_of(address: str) -> str:
    """Return the network that counts as one client: an IPv4 address, or the /64 network of an IPv6 address."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return "unknown"
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, IPV6_PREFIX), strict=False))


class TrustedNetworks:
    """The networks of proxies: one of their connections carries requests of many clients."""

    def __init__(self, networks: Collection[str]) -> None:
        self._networks = [ipaddress.ip_network(network) for network in networks]

    def __contains__(self, address: str) -> bool:
        try:
            parsed = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return False
        return any(parsed in network for network in self._networks)
