"""graphql-http's audit of servers, on the gateway as it serves."""

from tests.support import node_client
from tests.support.served import Served


async def test_the_public_audit_finds_nothing(served: Served) -> None:
    audits = await node_client.run_node_script("audit.js", url=f"{served.url}/graphql")
    assert [audit for audit in audits if audit["status"] != "ok"] == []
    assert len({audit["id"] for audit in audits}) == 61
