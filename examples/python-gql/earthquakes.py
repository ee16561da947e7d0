"""Reads pages of earthquakes, and prints new ones as they arrive: Python with gql.

    pip install "gql[aiohttp,websockets]"
    python earthquakes.py 4.5 --pages 2 --follow

The environment variable API_URL is the address of the gateway.
"""

import argparse
import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

from gql import Client, gql
from gql.transport.aiohttp import AIOHTTPTransport
from gql.transport.exceptions import TransportQueryError
from gql.transport.websockets import WebsocketsTransport

URL = os.environ.get("API_URL", "http://127.0.0.1:8000/graphql")
ATTEMPTS = 5

EARTHQUAKES = gql("""
    query Earthquakes($magnitude: Float!, $after: String) {
      earthquakes(minMagnitude: $magnitude, first: 20, after: $after) {
        nodes { id magnitude place occurredAt }
        pageInfo { hasNextPage endCursor }
      }
    }
""")
DETECTED = gql("""
    subscription Detected($magnitude: Float!) {
      earthquakeDetected(minMagnitude: $magnitude) { id magnitude place occurredAt }
    }
""")


async def execute(session: Any, document: Any, **variables: Any) -> dict[str, Any]:
    """Execute a query. Repeat it after an error that is `retryable`, with growing delays."""
    for attempt in range(ATTEMPTS):
        document.variable_values = variables
        try:
            result: dict[str, Any] = await session.execute(document)
            return result
        except TransportQueryError as problem:
            extensions = (problem.errors or [{}])[0].get("extensions", {})
            if not extensions.get("retryable") or attempt == ATTEMPTS - 1:
                raise
            await asyncio.sleep(extensions.get("retryAfter") or 0.2 * 2**attempt)
    raise AssertionError


async def pages(session: Any, magnitude: float, number: int) -> AsyncIterator[list[dict[str, Any]]]:
    """Yield up to `number` pages, newest first."""
    after = None
    for _ in range(number):
        page = (await execute(session, EARTHQUAKES, magnitude=magnitude, after=after))["earthquakes"]
        # An entry that could not be read is null.
        yield [node for node in page["nodes"] if node]
        if not page["pageInfo"]["hasNextPage"]:
            return
        after = page["pageInfo"]["endCursor"]


def show(event: dict[str, Any]) -> None:
    print(f"{event['occurredAt']}  {event['magnitude']:4.1f}  {event['place']}", flush=True)


async def main(magnitude: float, number: int, follow: bool) -> None:
    async with Client(transport=AIOHTTPTransport(url=URL)) as session:
        async for page in pages(session, magnitude, number):
            for event in page:
                show(event)
    if follow:
        async with Client(transport=WebsocketsTransport(url="ws" + URL.removeprefix("http"))) as session:
            DETECTED.variable_values = {"magnitude": magnitude}
            async for result in session.subscribe(DETECTED):
                show(result["earthquakeDetected"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("magnitude", type=float, nargs="?", default=4.5, help="the smallest magnitude")
    parser.add_argument("--pages", type=int, default=1, help="the number of pages of 20 earthquakes")
    parser.add_argument("--follow", action="store_true", help="print new earthquakes until interrupted")
    given = parser.parse_args()
    asyncio.run(main(given.magnitude, given.pages, given.follow))
