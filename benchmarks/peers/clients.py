"""DynamoDB by the SDKs, and by hand: clients that answer plain items, for the servers with Strawberry."""

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
    """What the store needs of DynamoDB. Keys and values of this schema are all texts."""

    async def get(self, table: str, key: Key) -> Item | None: ...
    async def batch_get(self, table: str, keys: Sequence[Key]) -> tuple[list[Item], list[Key]]: ...
    async def query(self, request: Mapping[str, Any]) -> list[Item]: ...


class ByDocuments:
    """A client by one function `_call`, whose requests and answers are DynamoDB's own."""

    def __init__(self) -> None:
        self._encode, self._decode = TypeSerializer().serialize, TypeDeserializer().deserialize

    async def _call(self, operation: str, request: Mapping[str, Any]) -> Any:
        raise NotImplementedError

    async def get(self, table: str, key: Key) -> Item | None:
        request = {"TableName": table, "Key": self._encoded(key), "ReturnConsumedCapacity": "TOTAL"}
        answer = await self._call("GetItem", request)
        return self._decoded(answer["Item"]) if "Item" in answer else None

    async def batch_get(self, table: str, keys: Sequence[Key]) -> tuple[list[Item], list[Key]]:
        """What was found, and the keys that are left unprocessed."""
        wanted = {table: {"Keys": [self._encoded(key) for key in keys]}}
        answer = await self._call("BatchGetItem", {"RequestItems": wanted, "ReturnConsumedCapacity": "TOTAL"})
        left = answer.get("UnprocessedKeys", {}).get(table, {}).get("Keys", [])
        return [self._decoded(item) for item in answer["Responses"].get(table, [])], [*map(self._decoded, left)]

    async def query(self, request: Mapping[str, Any]) -> list[Item]:
        values = self._encoded(request["ExpressionAttributeValues"])
        told = {**request, "ExpressionAttributeValues": values, "ReturnConsumedCapacity": "TOTAL"}
        return [self._decoded(item) for item in (await self._call("Query", told))["Items"]]

    def _encoded(self, texts: Mapping[str, str]) -> dict[str, Any]:
        return {name: self._encode(text) for name, text in texts.items()}

    def _decoded(self, item: Mapping[str, Any]) -> Item:
        return {name: self._decode(value) for name, value in item.items()}


class BotoClient(ByDocuments):
    """boto3 as it comes, in threads."""

    def __init__(self, store_url: str) -> None:
        super().__init__()
        session = boto3.Session(ACCESS_KEY, "local", region_name=REGION)
        client = session.client("dynamodb", endpoint_url=store_url)
        self._operations = {"GetItem": client.get_item, "BatchGetItem": client.batch_get_item, "Query": client.query}

    async def _call(self, operation: str, request: Mapping[str, Any]) -> Any:
        return await asyncio.to_thread(self._operations[operation], **request)


class AiobotocoreClient(ByDocuments):
    """aiobotocore, with as many connections as the others have, and without checks of what is sent."""

    def __init__(self, store_url: str) -> None:
        super().__init__()
        self._store_url = store_url
        self._operations: dict[str, Any] = {}

    async def open(self) -> None:
        session = aiobotocore.session.get_session()
        config = Config(max_pool_connections=CONNECTIONS, parameter_validation=False)
        keys = {"aws_access_key_id": ACCESS_KEY, "aws_secret_access_key": "local"}
        made = session.create_client(
            "dynamodb", region_name=REGION, endpoint_url=self._store_url, config=config, **keys
        )
        client = await made.__aenter__()  # until the process ends
        self._operations = {"GetItem": client.get_item, "BatchGetItem": client.batch_get_item, "Query": client.query}

    async def _call(self, operation: str, request: Mapping[str, Any]) -> Any:
        if not self._operations:
            await self.open()
        return await self._operations[operation](**request)


class OwnClient(ByDocuments):
    """Signed requests by aiohttp's client, and items decoded as this schema needs them."""

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
