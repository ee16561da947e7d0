"""Operations with the header that asks for an explanation."""

from collections.abc import Mapping
from typing import Any

from datastore.model.identity import Role
from tests.support.served import Served


async def ask_explained(
    served: Served,
    query: str,
    user: str | None = "ada",
    role: Role = Role.ADMIN,
    email: str | None = None,
    headers: Mapping[str, str] = {},
) -> dict[str, Any]:
    """Return the whole response to an operation that is explained."""
    sent = served.headers(user, role, email) | {"X-Explain": "1", **headers}
    async with served.http.post(f"{served.url}/graphql", json={"query": query}, headers=sent) as response:
        assert response.headers["Cache-Control"] == "no-store"
        answer: dict[str, Any] = await response.json()
        return answer


def explanation(answer: dict[str, Any]) -> dict[str, Any]:
    assert "errors" not in answer, answer["errors"]
    received: dict[str, Any] = answer["extensions"]["dynamodb"]
    return received
