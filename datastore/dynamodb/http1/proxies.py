"""Tunnels through an HTTP proxy, as HTTPS_PROXY and NO_PROXY ask for them (RFC 9110, 9.3.6).

Which addresses go through which proxy is botocore's to say, so that all requests to AWS take the same way.
"""

import asyncio
import socket
from base64 import b64encode
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from botocore.utils import get_environ_proxies

MAX_HEAD_BYTES = 2**16
END_OF_HEAD = b"\r\n\r\n"


class ProxyUnusable(Exception):
    """HTTPS_PROXY cannot be used as it is set; the message says why."""


class ProxyRefused(OSError):
    """The proxy opens no tunnel; the message says what it answers."""


class Proxy(NamedTuple):
    """`authorization` is what its Proxy-Authorization header says, if it is sent one."""

    host: str
    port: int
    authorization: str | None = None


def proxy_for(url: str) -> Proxy | None:
    """The proxy that requests to an https:// URL go through, by the environment. Raises `ProxyUnusable`.

    Plain http:// leads to engines nearby, and through no proxy.
    """
    found = get_environ_proxies(url).get("https") if url.startswith("https://") else None
    return _proxy(found) if found else None


def _proxy(url: str) -> Proxy:
    try:
        parts = urlsplit(url if "://" in url else f"http://{url.removeprefix('//')}")
        host, port = parts.hostname, parts.port or 80
    except ValueError:  # brackets without an address, or a port that is no number
        host = None
    if not host or parts.scheme != "http":
        raise ProxyUnusable("HTTPS_PROXY must be the URL of a proxy that is spoken to by http://: http://HOST:PORT.")
    if parts.username is None:
        return Proxy(host, port)
    words = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return Proxy(host, port, f"Basic {b64encode(words.encode()).decode()}")


async def open_tunnel(sock: socket.socket, proxy: Proxy, host: str, port: int) -> None:
    """Ask the proxy that `sock` is connected to for a tunnel. Raises `OSError`, `ProxyRefused` among them."""
    authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    lines = [f"CONNECT {authority} HTTP/1.1", f"Host: {authority}"]
    if proxy.authorization is not None:
        lines.append(f"Proxy-Authorization: {proxy.authorization}")
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(sock, "\r\n".join([*lines, "", ""]).encode())
    head = b""
    while END_OF_HEAD not in head:
        more = await loop.sock_recv(sock, 4096)
        head += more
        if not more or len(head) > MAX_HEAD_BYTES:
            raise ProxyRefused(f"The proxy {proxy.host}:{proxy.port} gives no answer to CONNECT {authority}.")
    version, status, *_ = [*head.split(b"\r\n", 1)[0].split(b" ", 2), b""]
    # Until the tunnel's other end is asked, nothing comes through it.
    if not version.startswith(b"HTTP/1.") or not status.startswith(b"2") or not head.endswith(END_OF_HEAD):
        answered = head.split(b"\r\n", 1)[0].decode(errors="replace")[:100]
        raise ProxyRefused(f"The proxy {proxy.host}:{proxy.port} refuses CONNECT {authority}: it answers {answered!r}.")
