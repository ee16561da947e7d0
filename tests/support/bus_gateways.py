"""Metrics of gateways on a bus."""

from datastore.model.identity import Role
from tests.support.served import Served


async def metric_value(served: Served, name: str) -> float:
    # Close the connection, so that the gateway does not wait for it when it stops.
    headers = served.headers("root", Role.ADMIN) | {"Connection": "close"}
    async with served.http.get(f"{served.url}/metrics", headers=headers) as response:
        lines = (await response.text()).splitlines()
    return float(next(line for line in lines if line.startswith(f"{name} ")).rpartition(" ")[2])
