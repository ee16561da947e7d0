"""Who a client is by its address: what proxies in front tell of it counts only if they are ours."""

import ipaddress
from collections.abc import Collection
from functools import lru_cache
from typing import Any

from starlette.middleware import Middleware
from starlette.types import Scope
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from server.operations.request import Caller

# A customer of a provider gets a /64 at least, and can take any address in it.
IPV6_PREFIX = 64
# Of an X-Forwarded-For: the addresses of more proxies than anybody has.
MOST_FORWARDED_BYTES = 1024


def behind_proxies(trusted: Collection[str]) -> list[Middleware]:
    """What tells an application the client's address and scheme, as X-Forwarded-For and -Proto of `trusted` say.

    They are networks (CIDR). The address is the rightmost that is not trusted itself: what stands left of it, a client
    may have made up.
    """
    return [Middleware(_ProxyHeaders, trusted_hosts=list(trusted))] if trusted else []


class _ProxyHeaders(ProxyHeadersMiddleware):
    """uvicorn's, which goes through all addresses however many a client has made up. Here the last ones count."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = scope.get("headers", ())
        if any(len(value) > MOST_FORWARDED_BYTES and name == b"x-forwarded-for" for name, value in headers):
            scope["headers"] = [
                (name, _last(value) if name == b"x-forwarded-for" else value) for name, value in headers
            ]
        await super().__call__(scope, receive, send)


def _last(addresses: bytes) -> bytes:
    """The whole addresses among the last bytes of a list."""
    return addresses[-MOST_FORWARDED_BYTES:].partition(b",")[2]


def address_in(scope: Scope) -> str:
    """The client's address, as the server or `behind_proxies` has put it into the scope; empty on a Unix socket."""
    client = scope.get("client")
    return client[0] if client else ""


@lru_cache(maxsize=4096)
def network_of(address: str) -> str:
    """What is taken for one client: an IPv4 address, or an IPv6 network of 64 bits."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return "unknown"
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, IPV6_PREFIX), strict=False))


def payer(caller: Caller) -> str:
    """Whom a limit for each caller counts for: the user of the token, else the client's network."""
    if caller.payer is None:
        identity = caller.identity
        caller.payer = f"user:{identity.user_id}" if identity else f"address:{network_of(caller.address)}"
    return caller.payer


class Trusted:
    """Networks whose connections carry many clients."""

    def __init__(self, networks: Collection[str]) -> None:
        self._networks = [ipaddress.ip_network(network) for network in networks]

    def __contains__(self, address: str) -> bool:
        try:
            parsed = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return False
        return any(parsed in network for network in self._networks)
