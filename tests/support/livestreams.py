"""Steps and data of the tests of livestreams."""

from datetime import timedelta
from typing import Any

from datastore.model.identity import Role
from datastore.model.timestamps import iso
from tests.support.served import NOON, Answer, Served

ALL = " fragment All on Livestream { livestreamId title description streamUrl startTime endTime createdAt status }"
CREATE = "mutation ($input: CreateLivestreamInput!) { createLivestream(input: $input) { ...All } }" + ALL
UPDATE = (
    "mutation ($id: ID!, $input: UpdateLivestreamInput!) { updateLivestream(id: $id, input: $input) { ...All } }" + ALL
)
END = "mutation ($id: ID!) { endLivestream(id: $id) { ...All } }" + ALL


def iso_after_noon(**later: float) -> str:
    """Return the time this long after noon as the API writes it."""
    return iso(NOON + timedelta(**later))


async def admin(served: Served, query: str, **variables: Any) -> Answer:
    return await served.ask(query, variables, user="root", role=Role.ADMIN)


async def announce(served: Served, **more: Any) -> Any:
    """Announce a livestream, by default from one to two o'clock."""
    given = {"title": "Opening", "streamUrl": "https://example.com/live", "startTime": iso_after_noon(hours=1)} | more
    given = {"endTime": iso_after_noon(hours=2)} | given
    answer = await admin(served, CREATE, input=given)
    assert answer.errors is None, answer.errors
    return answer.data["createLivestream"]


async def change_livestream(served: Served, id: str, **changes: Any) -> Answer:
    return await admin(served, UPDATE, id=id, input=changes)
