"""Clients that repeat an operation, whatever the response."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count
from types import MappingProxyType
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from tests.support.command_line import GatewayProcess

PAUSE_SECONDS = 0.05


@contextmanager
def repeated(
    gateway: GatewayProcess,
    query: str | Callable[[int], str],
    token: str | None = None,
    *,
    clients: int = 1,
    pause: float = PAUSE_SECONDS,
    headers: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[None]:
    """Send an operation again and again for the duration of a block.

    A function as `query` returns the operation for a number, which is another one in each request. `pause` is the
    seconds between the requests of a client.
    """
    ended, numbers = threading.Event(), count()
    sent = {"Content-Type": "application/json", **headers} | ({"Authorization": f"Bearer {token}"} if token else {})

    def send() -> None:
        while not ended.wait(pause):
            text = query if isinstance(query, str) else query(next(numbers))
            request = Request(f"{gateway.url}/graphql", json.dumps({"query": text}).encode(), sent)
            with suppress(HTTPError, URLError, OSError), urlopen(request, timeout=10) as response:
                response.read()

    threads = [threading.Thread(target=send, daemon=True) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join(20)
