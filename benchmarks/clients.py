"""CPU per DynamoDB call of the gateway's client, the same over aiohttp, boto3 in threads, and aiobotocore.

All return plain Python values, read the same items, and request the consumed capacity.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any, Self, cast

import aiohttp
import boto3
import botocore.config
from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from boto3.dynamodb.types import TypeDeserializer
from botocore.credentials import Credentials

from benchmarks import ENGINE_KEY
from benchmarks.data import AREA, NOON, PAGE, open_store, sighting_keys
from benchmarks.measuring import Call, closed_loop, cpu_per_call, median_ratio
from datastore.dynamodb.client import Client, Endpoint
from datastore.dynamodb.codec import decode_item, encode_item
from datastore.dynamodb.http1 import HttpOrigin, HttpResponse, Pool
from datastore.dynamodb.sigv4 import CredentialSource
from datastore.keyspace import sightings as keys
from datastore.keyspace.sightings import BLIP

OURS = "Store"
BARE = "Client"
CONCURRENCIES = (1, 16)
MAX_CONCURRENCY = max(CONCURRENCIES)
CALLS = {"GetItem": 240, f"BatchGetItem of {PAGE}": 48, f"Query of {PAGE}": 48}
ACCOUNT = {"region_name": "local", "aws_access_key_id": ENGINE_KEY, "aws_secret_access_key": "local"}

VALUES = {
    "partition": keys.sighting.partition_of(AREA),
    "oldest": keys.sighting.prefix,
    "end": keys.SIGHTINGS_END,
    "now": NOON.timestamp(),
}
KEYS = [{"PK": key.partition, "SK": key.sort} for key in sighting_keys()]
REQUESTS: Mapping[str, Mapping[str, Any]] = {
    "GetItem": {"TableName": BLIP.name, "Key": encode_item(KEYS[0])},
    "BatchGetItem": {"RequestItems": {BLIP.name: {"Keys": [encode_item(key) for key in KEYS]}}},
    "Query": {
        "TableName": BLIP.name,
        "KeyConditionExpression": keys.ACTIVE_IN_AREA.key,
        "FilterExpression": " AND ".join(keys.ACTIVE_IN_AREA.filter),
        "ExpressionAttributeValues": encode_item({f":{name}": value for name, value in VALUES.items()}),
        "ScanIndexForward": False,
        "Limit": PAGE,
    },
}

Calls = tuple[Call, Call, Call]
Decode = Callable[[Mapping[str, Any]], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class ClientResult:
    """CPU milliseconds per call, by contender and round."""

    operation: str
    concurrency: int
    rounds: Mapping[str, list[float]]

    def median(self, contender: str) -> float:
        return median(self.rounds[contender])

    def ratio(self, contender: str) -> float:
        """Return the median ratio to `Store`."""
        return median_ratio(self.rounds[contender], self.rounds[OURS])


async def measure(client: Client, url: str, rounds: int, effort: float) -> list[ClientResult]:
    """Measure the contenders in turns for `rounds` rounds. `effort` scales the number of calls."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(MAX_CONCURRENCY))
    async with _aiobotocore(url) as rival, _over_aiohttp(url) as other:
        ours = {OURS: _through_store(client), BARE: _bare(client), "over aiohttp": _bare(other)}
        contenders = {**ours, "boto3": _boto3(url), "aiobotocore": rival}
        results = [
            ClientResult(operation, concurrency, {name: [] for name in contenders})
            for operation in CALLS
            for concurrency in CONCURRENCIES
        ]
        for calls in contenders.values():
            await _warm_up(calls)
        for _ in range(rounds):
            for result in results:
                await _round(result, contenders, int(CALLS[result.operation] * effort))
    return results


async def _warm_up(calls: Calls) -> None:
    """Check the number of items of each call, and open the connections."""
    for call, expected in zip(calls, (1, PAGE, PAGE), strict=True):
        items = await call()
        if not isinstance(items, list) or len(items) != expected:
            raise RuntimeError(f"A benchmark did not read {expected} items.")
        await closed_loop(call, MAX_CONCURRENCY, MAX_CONCURRENCY)  # opens as many connections as the rounds need


async def _round(result: ClientResult, contenders: Mapping[str, Calls], total: int) -> None:
    index = list(CALLS).index(result.operation)
    for name, calls in contenders.items():
        result.rounds[name].append(await cpu_per_call(calls[index], total, result.concurrency))


def _through_store(client: Client) -> Calls:
    """Return calls like those of resolvers. Each call has a store of its own, as each request has."""
    item_keys = sighting_keys()

    async def get() -> object:
        return [await open_store(client).get(keys.SIGHTING_NODE, item_keys[0])]

    async def batch() -> object:
        store = open_store(client)
        return await asyncio.gather(*[store.get(keys.SIGHTING_NODE, key) for key in item_keys])

    async def query() -> object:
        return (await open_store(client).query(keys.ACTIVE_IN_AREA, VALUES, limit=PAGE)).items

    return get, batch, query


def _bare(client: Client) -> Calls:
    async def call(operation: str) -> object:
        request = {**REQUESTS[operation], "ReturnConsumedCapacity": "TOTAL"}
        return _items(await client.call(operation, request), decode_item)

    return lambda: call("GetItem"), lambda: call("BatchGetItem"), lambda: call("Query")


class _Aiohttp:
    """A replacement of `Pool` by aiohttp, for the same requests."""

    closed = False

    def __init__(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=128, keepalive_timeout=60),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=1, sock_read=5),
            auto_decompress=False,
            skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent"),
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def send(self, origin: HttpOrigin, head: bytes, body: bytes, deadline: float, *, fresh: bool) -> HttpResponse:
        lines = head.decode().split("\r\n")[1:-3]
        headers = dict([line.split(": ", 1) for line in lines])
        url = f"http://{origin.authority}/"
        async with asyncio.timeout_at(deadline):
            async with self._session.post(url, data=body, headers=headers, allow_redirects=False) as response:
                return HttpResponse(response.status, None, await response.read())

    async def close(self) -> None:
        await self._session.close()


class _OverAiohttp(Client):
    """The gateway's client on aiohttp's connections."""

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._transport._pool = cast(Pool, _Aiohttp())
        return self


def _over_aiohttp(url: str) -> Client:
    credentials = Credentials(ACCOUNT["aws_access_key_id"], ACCOUNT["aws_secret_access_key"])
    return _OverAiohttp(Endpoint(lambda: url, lambda: url, ACCOUNT["region_name"]), CredentialSource(credentials))


def _boto3(url: str) -> Calls:
    config = botocore.config.Config(max_pool_connections=MAX_CONCURRENCY)
    client = boto3.client("dynamodb", endpoint_url=url, config=config, **ACCOUNT)
    decode = _deserializer()

    def blocking(method: Callable[..., Any], request: Mapping[str, Any]) -> object:
        return _items(method(**request, ReturnConsumedCapacity="TOTAL"), decode)

    async def call(method: Callable[..., Any], operation: str) -> object:
        return await asyncio.to_thread(blocking, method, REQUESTS[operation])

    return (
        lambda: call(client.get_item, "GetItem"),
        lambda: call(client.batch_get_item, "BatchGetItem"),
        lambda: call(client.query, "Query"),
    )


@asynccontextmanager
async def _aiobotocore(url: str) -> AsyncIterator[Calls]:
    config = AioConfig(max_pool_connections=MAX_CONCURRENCY)
    decode = _deserializer()
    async with get_session().create_client("dynamodb", endpoint_url=url, config=config, **ACCOUNT) as client:

        async def call(method: Callable[..., Any], operation: str) -> object:
            return _items(await method(**REQUESTS[operation], ReturnConsumedCapacity="TOTAL"), decode)

        yield (
            lambda: call(client.get_item, "GetItem"),
            lambda: call(client.batch_get_item, "BatchGetItem"),
            lambda: call(client.query, "Query"),
        )


def _deserializer() -> Decode:
    deserialize = TypeDeserializer().deserialize
    return lambda item: {name: deserialize(value) for name, value in item.items()}


def _items(answer: Mapping[str, Any], decode: Decode) -> list[Mapping[str, Any]]:
    if "Item" in answer:
        return [decode(answer["Item"])]
    items = answer["Responses"][BLIP.name] if "Responses" in answer else answer["Items"]
    return [decode(item) for item in items]
