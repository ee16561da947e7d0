"""A proxy in front of the engine that adds the table administration of AWS."""

import orjson
import pytest
from aiohttp import web

from datastore.dynamodb.endpoints import STREAMS_VARIABLE, TABLES_VARIABLE
from datastore.dynamodb.retry.backoff import Backoff
from datastore.infrastructure import table_updates
from tests.support.fault_proxy import Proxy, Seen, forward, refuse


class Aws:
    """AWS's behaviour that the engine lacks.

    A new table has backups a moment later, an index takes a while to be built, and a table accepts one change at a
    time.
    """

    def __init__(self) -> None:
        self.recoverable: dict[str, bool] = {}
        self.soon = 2
        self.filling = 0

    async def __call__(self, proxy: Proxy, seen: Seen) -> web.StreamResponse:
        name = seen.body.get("TableName", "")
        if seen.operation == "UpdateContinuousBackups":
            if self.soon:
                self.soon -= 1
                return await refuse(400, "ContinuousBackupsUnavailableException")(proxy, seen)
            wanted = seen.body["PointInTimeRecoverySpecification"]["PointInTimeRecoveryEnabled"]
            self.recoverable[name] = wanted
        if seen.operation.endswith("ContinuousBackups"):
            status = "ENABLED" if self.recoverable.get(name) else "DISABLED"
            recovery = {"PointInTimeRecoveryStatus": status}
            backups = {"ContinuousBackupsStatus": "ENABLED", "PointInTimeRecoveryDescription": recovery}
            return web.Response(body=orjson.dumps({"ContinuousBackupsDescription": backups}))
        if seen.operation == "UpdateTable":
            if self.filling:
                return await refuse(400, "ResourceInUseException")(proxy, seen)
            self.filling = 3 if "GlobalSecondaryIndexUpdates" in seen.body else 0
        if seen.operation == "DescribeTable" and self.filling:
            self.filling -= 1
            return await _filling(proxy, seen)
        return await forward(proxy, seen)


async def _filling(proxy: Proxy, seen: Seen) -> web.StreamResponse:
    """Answer as if the newest index were being created."""
    status, _, content = await proxy.ask(seen)
    answer = orjson.loads(content)
    answer["Table"]["GlobalSecondaryIndexes"][-1]["IndexStatus"] = "CREATING"
    return web.Response(status=status, body=orjson.dumps(answer))


def be_aws(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Have `--store aws` use the proxy, which behaves as AWS does. Return the environment that does so."""
    account = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "eu-west-1"}
    environment = {TABLES_VARIABLE: proxy.url, STREAMS_VARIABLE: proxy.url, **account}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(table_updates, "FIRST_POLL_SECONDS", 0.001)
    monkeypatch.setattr(table_updates, "RETRY", Backoff(initial=0.001, attempts=4))
    proxy.always = Aws()
    return environment
