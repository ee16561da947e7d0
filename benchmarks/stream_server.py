"""A server of DynamoDB Streams' protocol whose stream has many shards and a steady rate of records.

`python -m benchmarks.stream_server PORT SHARDS RATE BYTES` serves until it is killed. From the start of the process,
each shard gets RATE / SHARDS records a second. Each image of a record has BYTES bytes. The server stores nothing.
"""

import sys
import time
from typing import Any

import orjson
from aiohttp import web

ARN = "arn:aws:dynamodb:local:000000000000:table/{}/stream/2026-01-01T00:00:00.000"
PAGE = 100
MOST = 1000


class Shards:
    """The responses of the server. `called` counts the requests by operation."""

    def __init__(self, shards: int, rate: float, size: int) -> None:
        self._names = [f"shardId-{number:020d}-{number:08x}" for number in range(shards)]
        self._each = rate / shards
        self._text = "x" * size
        self._began = time.time()
        self.called: dict[str, int] = {}

    def answer(self, operation: str, body: dict[str, Any]) -> dict[str, Any]:
        self.called[operation] = self.called.get(operation, 0) + 1
        match operation:
            case "DescribeTable":
                return {"Table": {"LatestStreamArn": ARN.format(body["TableName"])}}
            case "DescribeStream":
                return {"StreamDescription": self._listed(body.get("ExclusiveStartShardId"))}
            case "GetShardIterator":
                return {"ShardIterator": f"{body['ShardId']} {self._written()}"}
            case "GetRecords":
                return self._records(*body["ShardIterator"].split())
        return self.called if operation == "ListStreams" else {}

    def _written(self) -> int:
        """Return the number of records that a shard has had so far."""
        return int((time.time() - self._began) * self._each)

    def _listed(self, after: str | None) -> dict[str, Any]:
        start = 0 if after is None else self._names.index(after) + 1
        page = self._names[start : start + PAGE]
        more = {"LastEvaluatedShardId": page[-1]} if start + PAGE < len(self._names) else {}
        return {"Shards": [{"ShardId": name} for name in page], **more}

    def _records(self, shard: str, at: str) -> dict[str, Any]:
        start = int(at)
        end = min(self._written(), start + MOST)
        return {
            "Records": [self._record(shard, number) for number in range(start, end)],
            "NextShardIterator": f"{shard} {end}",
        }

    def _record(self, shard: str, number: int) -> dict[str, Any]:
        item = {"PK": {"S": shard}, "SK": {"S": str(number)}, "text": {"S": self._text}}
        body = {
            "Keys": {"PK": item["PK"], "SK": item["SK"]},
            "OldImage": item,
            "NewImage": item,
            "SequenceNumber": f"{number + 1:021d}",
            "ApproximateCreationDateTime": self._began + number / self._each,
        }
        return {"eventName": "MODIFY", "dynamodb": body}


def serve(port: int, shards: Shards) -> None:
    async def answer(request: web.Request) -> web.Response:
        operation = request.headers["x-amz-target"].rpartition(".")[2]
        return web.Response(body=orjson.dumps(shards.answer(operation, orjson.loads(await request.read()))))

    app = web.Application()
    app.router.add_post("/", answer)
    web.run_app(app, host="127.0.0.1", port=port, access_log=None, print=None)


if __name__ == "__main__":
    port, shards, rate, size = map(int, sys.argv[1:])
    serve(port, Shards(shards, rate, size))
