"""Subscriptions to matches: their updates, and the checks of a sequence of updates."""

from typing import Any

from tests.support.match_updates import FIELDS
from tests.support.served import Served

SCORES = f"subscription {{ liveScores%s {{ isSnapshot updates {{ {FIELDS} }} }} }}"

LIVE_SCORE = FIELDS[FIELDS.index("liveScore") :]


def is_over(update: Any) -> bool:
    return bool(update["liveScore"]["phase"] == "FINISHED")


def check_sequence(updates: list[Any]) -> None:
    """A snapshot, then every version once."""
    assert updates[0]["isSnapshot"]
    assert updates[0]["events"] == []
    assert [update["isSnapshot"] for update in updates[1:]] == [False] * (len(updates) - 1)
    first = updates[0]["version"]
    assert [update["version"] for update in updates] == list(range(first, first + len(updates)))
    assert [update["liveScore"]["version"] for update in updates] == [update["version"] for update in updates]


async def live_score(served: Served, match_id: str = "m1") -> Any:
    """What the table has."""
    answer = await served.ask(f'{{ match(id: "{match_id}") {{ {LIVE_SCORE} }} }}')
    assert answer.errors is None
    return answer.data["match"]["liveScore"]
