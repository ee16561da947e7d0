"""The opening of connections to an origin, with TLS for https:// and through a proxy if one is configured."""

import asyncio
import functools
import os
import re
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar
from urllib.parse import urlsplit

import aiohappyeyeballs
import certifi
from aiohappyeyeballs import AddrInfoType

from datastore.dynamodb.http1.proxies import Proxy, open_tunnel, proxy_for

# The connection attempt delay of RFC 8305, after which the next address is tried concurrently.
NEXT_ADDRESS_SECONDS = 0.25
# The names that `openssl rehash` gives to certificates.
HASHED_NAME = re.compile(r"[0-9a-f]{8}\.\d+")

P = TypeVar("P", bound=asyncio.Protocol)


class HttpOrigin(NamedTuple):
    """The destination of requests."""

    tls: bool
    host: str
    port: int
    #: The value of the Host header.
    authority: str
    #: The proxy through which a tunnel is opened, if any.
    proxy: Proxy | None = None

    @classmethod
    def of(cls, url: str) -> "HttpOrigin":
        """Return the origin of a URL. Raises `ProxyUnusable`."""
        parts = urlsplit(url)
        tls = parts.scheme == "https"
        return cls(tls, parts.hostname or "", parts.port or (443 if tls else 80), parts.netloc, proxy_for(url))


async def connect(origin: HttpOrigin, seconds: float, protocol: Callable[[], P]) -> P:
    """Open a connection. Raises `OSError`, also `TimeoutError`. The timeout cancels the current task.

    `seconds` is for connecting and TLS, and as much again for a tunnel. The lookup of names is not included: a resolver
    has limits of its own.
    """
    loop = asyncio.get_running_loop()
    tls = tls_context() if origin.tls else None
    proxy = origin.proxy
    target = origin if proxy is None else proxy
    addresses = await _addresses(target.host, target.port)
    async with asyncio.timeout(seconds if proxy is None else 2 * seconds):
        # Not the Happy Eyeballs of `create_connection`, which uvloop lacks.
        sock = await aiohappyeyeballs.start_connection(
            addresses, happy_eyeballs_delay=NEXT_ADDRESS_SECONDS, interleave=1, loop=loop
        )
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if proxy is not None:
                await open_tunnel(sock, proxy, origin.host, origin.port)
            _, opened = await loop.create_connection(
                protocol, sock=sock, ssl=tls, server_hostname=origin.host if tls else None
            )
        except BaseException:
            sock.close()
            raise
        return opened


async def _addresses(host: str, port: int) -> Sequence[AddrInfoType]:
    try:
        # A numeric address needs no lookup in a thread.
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        return await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as problem:
        raise OSError(f"{host} is not a valid host name") from problem


@functools.cache
def tls_context() -> ssl.SSLContext:
    """Return a context with the system's root certificates, or with Mozilla's if the system has none.

    SSL_CERT_FILE and SSL_CERT_DIR may replace the system's.
    """
    context = ssl.create_default_context()  # on Windows with the roots of its certificate store
    if not context.cert_store_stats()["x509"] and not _folder_holds_certificates():
        context.load_verify_locations(certifi.where())
    context.set_alpn_protocols(["http/1.1"])
    return context


def _folder_holds_certificates() -> bool:
    """Return whether OpenSSL has a folder of certificates. It reads them on demand, by hashes of their names."""
    paths = ssl.get_default_verify_paths()
    folders = os.environ.get(paths.openssl_capath_env, paths.openssl_capath).split(os.pathsep)
    return any(
        HASHED_NAME.fullmatch(name) for folder in folders if os.path.isdir(folder) for name in os.listdir(folder)
    )
