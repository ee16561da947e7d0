"""Documents and steps for the tests of Live Activities."""

from typing import Any

from datastore.model.identity import Role
from tests.support.served import Answer, Served

TOKEN, NEW_TOKEN = "a1" * 80, "b2" * 80

FIELDS = "matchId userId deviceId updateToken status sessionStartedAt endedAt endReason suspendedAt expiresAt"

OF_USER = f"""query ($user: ID!, $first: Int, $after: String, $last: Int, $before: String) {{
  liveActivities(userId: $user, first: $first, after: $after, last: $last, before: $before) {{
    nodes {{ {FIELDS} }}
    pageInfo {{ hasNextPage hasPreviousPage startCursor endCursor }}
  }}
}}"""

REGISTER = f"""mutation ($match: ID!, $device: ID!, $token: String!) {{
  registerLiveActivity(matchId: $match, deviceId: $device, input: {{updateToken: $token}}) {{ {FIELDS} }}
}}"""

END = f"""mutation ($match: ID!, $device: ID!, $of: ID, $reason: String) {{
  endLiveActivity(matchId: $match, deviceId: $device, userId: $of, input: {{reason: $reason}}) {{ {FIELDS} }}
}}"""

HERE = {"match": "m1", "device": "phone"}


async def register_session(served: Served, user: str = "ada", token: str = TOKEN, **where: str) -> Answer:
    return await served.ask(REGISTER, {**HERE, **where, "token": token}, user=user)


async def end(served: Served, user: str = "ada", role: Role = Role.USER, **more: str) -> Answer:
    return await served.ask(END, {**HERE, **more}, user=user, role=role)


async def activities(served: Served, of: str = "ada", user: str = "ada", role: Role = Role.USER) -> list[Any]:
    answer = await served.ask(OF_USER, {"user": of}, user=user, role=role)
    assert answer.errors is None
    nodes: list[Any] = answer.data["liveActivities"]["nodes"]
    return nodes
