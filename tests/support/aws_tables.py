"""AWS's part of table administration that the engine lacks, in a proxy before it."""

import orjson
import pytest
from aiohttp import web

from datastore.dynamodb.endpoints import STREAMS_VARIABLE, TABLES_VARIABLE
from datastore.dynamodb.retry.backoff import Backoff
from datastore.infrastructure import table_updates
from tests.support.fault_proxy import Proxy, Seen, forward, refuse


class Aws:
    """AWS where it does more than the engine: it keeps backups, which it has for a new table a moment later, takes a
    while for an index, and changes one thing of a table at a time.
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
    """The newest index is not ready; the table may be taken to be."""
    status, _, content = await proxy.ask(seen)
    answer = orjson.loads(content)
    answer["Table"]["GlobalSecondaryIndexes"][-1]["IndexStatus"] = "CREATING"
    return web.Response(status=status, body=orjson.dumps(answer))


def be_aws(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Have `--store aws` lead to the proxy, and that do what AWS does; the environment that makes it so."""
    account = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "eu-west-1"}
    environment = {TABLES_VARIABLE: proxy.url, STREAMS_VARIABLE: proxy.url, **account}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(table_updates, "FIRST_POLL_SECONDS", 0.001)
    monkeypatch.setattr(table_updates, "RETRY", Backoff(initial=0.001, attempts=4))
    proxy.always = Aws()
    return environment
