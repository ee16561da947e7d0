"""DynamoDB clients that return plain items, on the SDKs and hand-written, for the servers with Strawberry."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import aiobotocore.session
import boto3
from boto3.dynamodb.types import TypeDeserializer, TypeSerializer
from botocore.config import Config

from benchmarks.peers.wire import ACCESS_KEY, CONNECTIONS, REGION, AiohttpWire

Item = dict[str, Any]
Key = Mapping[str, str]


class Client(Protocol):
    """The interface that the store needs. All keys and values of this schema are texts."""

    async def get(self, table: str, key: Key) -> Item | None: ...
    async def batch_get(self, table: str, keys: Sequence[Key]) -> tuple[list[Item], list[Key]]: ...
    async def query(self, request: Mapping[str, Any]) -> list[Item]: ...


class DocumentClient:
    """A client on one method `_call` with DynamoDB's own requests and responses."""

    def __init__(self) -> None:
        self._encode, self._decode = TypeSerializer().serialize, TypeDeserializer().deserialize

    async def _call(self, operation: str, request: Mapping[str, Any]) -> Any:
        raise NotImplementedError

    async def get(self, table: str, key: Key) -> Item | None:
        request = {"TableName": table, "Key": self._encoded(key), "ReturnConsumedCapacity": "TOTAL"}
        answer = await self._call("GetItem", request)
        return self._decoded(answer["Item"]) if "Item" in answer else None

    async def batch_get(self, table: str, keys: Sequence[Key]) -> tuple[list[Item], list[Key]]:
        """Return the found items and the unprocessed keys."""
        requested = {table: {"Keys": [self._encoded(key) for key in keys]}}
        answer = await self._call("BatchGetItem", {"RequestItems": requested, "ReturnConsumedCapacity": "TOTAL"})
        unprocessed = answer.get("UnprocessedKeys", {}).get(table, {}).get("Keys", [])
        return [self._decoded(item) for item in answer["Responses"].get(table, [])], [*map(self._decoded, unprocessed)]

    async def query(self, request: Mapping[str, Any]) -> list[Item]:
        values = self._encoded(request["ExpressionAttributeValues"])
        full_request = {**request, "ExpressionAttributeValues": values, "ReturnConsumedCapacity": "TOTAL"}
        return [self._decoded(item) for item in (await self._call("Query", full_request))["Items"]]

    def _encoded(self, texts: Mapping[str, str]) -> dict[str, Any]:
        return {name: self._encode(text) for name, text in texts.items()}

    def _decoded(self, item: Mapping[str, Any]) -> Item:
        return {name: self._decode(value) for name, value in item.items()}


class BotoClient(DocumentClient):
    """boto3 with its defaults, in threads."""

    def __init__(self, store_url: str) -> None:
        super().__init__()
        session = boto3.Session(ACCESS_KEY, "local", region_name=REGION)
        client = session.client("dynamodb", endpoint_url=store_url)
        self._operations = {"GetItem": client.get_item, "BatchGetItem": client.batch_get_item, "Query": client.query}

    async def _call(self, operation: str, request: Mapping[str, Any]) -> Any:
        return await asyncio.to_thread(self._operations[operation], **request)


class AiobotocoreClient(DocumentClient):
    """aiobotocore with as many connections as the other clients, and without validation of parameters."""

    def __init__(self, store_url: str) -> None:
        super().__init__()
        self._store_url = store_url
        self._operations: dict[str, Any] = {}

    async def open(self) -> None:
        session = aiobotocore.session.get_session()
        config = Config(max_pool_connections=CONNECTIONS, parameter_validation=False)
        keys = {"aws_access_key_id": ACCESS_KEY, "aws_secret_access_key": "local"}
        context = session.create_client(
            "dynamodb", region_name=REGION, endpoint_url=self._store_url, config=config, **keys
        )
        client = await context.__aenter__()  # until the process ends
        self._operations = {"GetItem": client.get_item, "BatchGetItem": client.batch_get_item, "Query": client.query}

    async def _call(self, operation: str, request: Mapping[str, Any]) -> Any:
        if not self._operations:
            await self.open()
        return await self._operations[operation](**request)


class OwnClient(DocumentClient):
    """A hand-written client on aiohttp that decodes only the types that this schema needs."""

    def __init__(self, store_url: str) -> None:
        super().__init__()
        self._store_url = store_url
        self._wire: AiohttpWire | None = None
        self._encode, self._decode = _encode, _decode

    async def _call(self, operation: str, request: Mapping[str, Any]) -> Any:
        if self._wire is None:
            self._wire = AiohttpWire(self._store_url)
        return await self._wire.call(operation, request)


def _encode(text: str) -> dict[str, str]:
    return {"S": text}


def _decode(value: Mapping[str, Any]) -> Any:
    ((kind, content),) = value.items()
    if kind == "S":
        return content
    if kind == "N":
        return float(content) if "." in content else int(content)
    if kind == "L":
        return [_decode(element) for element in content]
    if kind == "M":
        return {name: _decode(element) for name, element in content.items()}
    return content if kind == "BOOL" else None


CLIENTS = {"boto3": BotoClient, "aiobotocore": AiobotocoreClient, "own": OwnClient}
