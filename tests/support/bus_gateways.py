"""Steps and data of the tests of bus gateways."""

from datastore.model.identity import Role
from tests.support.served import Served


async def figure(served: Served, name: str) -> float:
    # No connection is left over that a gateway would wait for at its end.
    headers = served.headers("root", Role.ADMIN) | {"Connection": "close"}
    async with served.http.get(f"{served.url}/metrics", headers=headers) as response:
        lines = (await response.text()).splitlines()
    return float(next(line for line in lines if line.startswith(f"{name} ")).rpartition(" ")[2])
