"""Tunnels through an HTTP proxy (CONNECT, RFC 9110, section 9.3.6). HTTPS_PROXY and NO_PROXY configure them.

botocore decides which addresses use which proxy, so that all requests to AWS take the same route.
"""

import asyncio
import socket
from base64 import b64encode
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

MAX_HEAD_BYTES = 2**16
END_OF_HEAD = b"\r\n\r\n"


class ProxyUnusable(Exception):
    """The value of HTTPS_PROXY cannot be used. The message says why."""


class TunnelFailed(OSError):
    """The proxy opened no tunnel. The message states the proxy's response, if any."""


class Proxy(NamedTuple):
    """The address of an HTTP proxy, and the credentials for it."""

    host: str
    port: int
    #: The value of the Proxy-Authorization header, if any.
    authorization: str | None = None


def proxy_for(url: str) -> Proxy | None:
    """Return the proxy for an https:// URL, from the environment. Raises `ProxyUnusable`.

    An http:// address is an engine of the operator's own and uses no proxy.
    """
    if not url.startswith("https://"):
        return None
    from botocore.utils import get_environ_proxies  # imported late: it loads most of botocore

    found = get_environ_proxies(url).get("https")
    return _proxy(found) if found else None


def _proxy(url: str) -> Proxy:
    try:
        parts = urlsplit(url if "://" in url else f"http://{url.removeprefix('//')}")
        host, port = parts.hostname, parts.port or 80
    except ValueError:  # brackets without an address, or a port that is not a number
        host = None
    if not host or parts.scheme != "http":
        raise ProxyUnusable("HTTPS_PROXY must be the http:// URL of a proxy: http://HOST:PORT.")
    if parts.username is None:
        return Proxy(host, port)
    credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return Proxy(host, port, f"Basic {b64encode(credentials.encode()).decode()}")


async def open_tunnel(sock: socket.socket, proxy: Proxy, host: str, port: int) -> None:
    """Open a tunnel through the proxy that `sock` is connected to. Raises `OSError`, also `TunnelFailed`."""
    name = f"{proxy.host}:{proxy.port}"
    authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    lines = [f"CONNECT {authority} HTTP/1.1", f"Host: {authority}"]
    if proxy.authorization is not None:
        lines.append(f"Proxy-Authorization: {proxy.authorization}")
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(sock, "\r\n".join([*lines, "", ""]).encode())
    head = b""
    while END_OF_HEAD not in head:
        received = await loop.sock_recv(sock, 4096)
        head += received
        if not received:
            raise TunnelFailed(f"The proxy {name} closed the connection without responding to CONNECT {authority}.")
        if len(head) > MAX_HEAD_BYTES:
            raise TunnelFailed(f"The head of the response of the proxy {name} is larger than {MAX_HEAD_BYTES} bytes.")
    version, status, *_ = [*head.split(b"\r\n", 1)[0].split(b" ", 2), b""]
    # The server sends nothing before the first request, so bytes after the head do not come from it and are refused.
    if not version.startswith(b"HTTP/1.") or not status.startswith(b"2") or not head.endswith(END_OF_HEAD):
        response = head.split(b"\r\n", 1)[0].decode(errors="replace")[:100]
        raise TunnelFailed(f"The proxy {name} refuses CONNECT {authority}: it sent {response!r}.")
