"""Subscriptions to matches, and checks of their sequences of updates."""

from typing import Any

from tests.support.match_updates import FIELDS
from tests.support.served import Served

SCORES = f"subscription {{ liveScores%s {{ isSnapshot updates {{ {FIELDS} }} }} }}"

LIVE_SCORE = FIELDS[FIELDS.index("liveScore") :]


def is_over(update: Any) -> bool:
    return bool(update["liveScore"]["phase"] == "FINISHED")


def check_sequence(updates: list[Any]) -> None:
    """Check for a snapshot followed by every version once."""
    assert updates[0]["isSnapshot"]
    assert updates[0]["events"] == []
    assert [update["isSnapshot"] for update in updates[1:]] == [False] * (len(updates) - 1)
    first = updates[0]["version"]
    assert [update["version"] for update in updates] == list(range(first, first + len(updates)))
    assert [update["liveScore"]["version"] for update in updates] == [update["version"] for update in updates]


async def live_score(served: Served, match_id: str = "m1") -> Any:
    """Return the stored live score."""
    answer = await served.ask(f'{{ match(id: "{match_id}") {{ {LIVE_SCORE} }} }}')
    assert answer.errors is None
    return answer.data["match"]["liveScore"]
