"""From an address to a connection that is open, with TLS where the address says so."""

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

# RFC 8305: how long one address is given before the next is tried beside it.
NEXT_ADDRESS_SECONDS = 0.25
# What `openssl rehash` calls a certificate.
HASHED_NAME = re.compile(r"[0-9a-f]{8}\.\d+")

P = TypeVar("P", bound=asyncio.Protocol)


class HttpOrigin(NamedTuple):
    """Where requests go; `authority` is what their Host header says. With a `proxy` they go through a tunnel."""

    tls: bool
    host: str
    port: int
    authority: str
    proxy: Proxy | None = None

    @classmethod
    def of(cls, url: str) -> "HttpOrigin":
        """Raises `ProxyUnusable`."""
        parts = urlsplit(url)
        tls = parts.scheme == "https"
        return cls(tls, parts.hostname or "", parts.port or (443 if tls else 80), parts.netloc, proxy_for(url))


async def connect(origin: HttpOrigin, seconds: float, protocol: Callable[[], P]) -> P:
    """Open a connection. Raises `OSError` (`TimeoutError` among them), and cuts off the current task to do so.

    The time is for connecting and for TLS, and as much again for a tunnel. Names are looked up without it: a resolver
    has limits of its own.
    """
    loop = asyncio.get_running_loop()
    tls = tls_context() if origin.tls else None
    proxy = origin.proxy
    target = origin if proxy is None else proxy
    addresses = await _addresses(target.host, target.port)
    async with asyncio.timeout(seconds if proxy is None else 2 * seconds):
        # Not create_connection's own race: uvloop has none.
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
        # An address as it is needs no thread to be looked up in.
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        return await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as problem:
        raise OSError(f"{host} is no name of a host") from problem


@functools.cache
def tls_context() -> ssl.SSLContext:
    """The system's roots, which SSL_CERT_FILE and SSL_CERT_DIR may replace; Mozilla's where a system has none."""
    context = ssl.create_default_context()  # on Windows these are those of its store
    if not context.cert_store_stats()["x509"] and not _folder_holds_certificates():
        context.load_verify_locations(certifi.where())
    context.set_alpn_protocols(["http/1.1"])
    return context


def _folder_holds_certificates() -> bool:
    """Whether OpenSSL has a folder to look into, which it does by hashes of names and only when it needs one."""
    paths = ssl.get_default_verify_paths()
    folders = os.environ.get(paths.openssl_capath_env, paths.openssl_capath).split(os.pathsep)
    return any(
        HASHED_NAME.fullmatch(name) for folder in folders if os.path.isdir(folder) for name in os.listdir(folder)
    )
