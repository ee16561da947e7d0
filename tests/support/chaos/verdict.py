"""The comparison of what is stored with what was acknowledged."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from datastore.database import Database
from tests.support.feed_model import FeedModel
from tests.support.load_facts import facts_and_problems
from tests.support.mixed_load import Fact, Truth

# The kinds of facts of the feed's workload; the second part of each but follows is a post.
FEED_KINDS = ("post", "comment", "like", "follow")


@dataclass
class WriteVerdict:
    """Facts that are not as the responses say.

    `lost`: an acknowledged write has no effect. `doubled`: a write has its effect twice. `others`: the value is that of
    another write, or what was removed or refused is stored.
    """

    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    # Facts that are stored although their write was not acknowledged.
    unacknowledged: int = 0

    def add(self, other: "WriteVerdict") -> None:
        self.lost += other.lost
        self.doubled += other.doubled
        self.others += other.others
        self.unacknowledged += other.unacknowledged


def judge_facts(truth: Truth, stored: Mapping[Fact, Any]) -> WriteVerdict:
    """Compare stored facts with what is possible after the responses. Kinds that `truth` does not know are ignored."""
    verdict = WriteVerdict()
    kinds = {fact[0] for fact in truth.may_be}
    for fact in {*truth.may_be, *(fact for fact in stored if fact[0] in kinds)}:
        value, possible = stored.get(fact), truth.may_be.get(fact, {None})
        if value in possible:
            verdict.unacknowledged += value is not None and len(possible) > 1
        elif value is None:
            verdict.lost.append(f"{fact} was acknowledged as {possible}")
        elif _is_more(value, possible):
            verdict.doubled.append(f"{fact} is stored {value} times")
        else:
            verdict.others.append(f"{fact} is {value!r}, not {possible}")
    return verdict


def _is_more(value: Any, possible: set[Any]) -> bool:
    """Return whether a fact that counts the items of one write counts more than the write creates."""
    return type(value) is int and value > max((one for one in possible if type(one) is int), default=value)


def truth_of_feed(model: FeedModel) -> Truth:
    """Return the posts, comments, likes and follows of the model as facts."""
    truth = Truth()
    for post_id, post in model.posts.items():
        truth.acknowledged(("post", post_id), None if post.deleted else True)
    for kind, keys in (("comment", model.comments), ("like", model.likes)):
        for key in keys:
            truth.acknowledged((kind, *key), True)
    for key in model.follows:
        truth.acknowledged(("follow", *key), True)
    return truth


def feed_facts(model: FeedModel, stored: Mapping[Fact, Any]) -> dict[Fact, Any]:
    """Return the stored facts of the feed by their existence. What belongs to deleted posts counts as it is modelled:
    the pipeline removes it at its own pace.
    """
    found: dict[Fact, Any] = {fact: True for fact in stored if fact[0] in FEED_KINDS}
    for kind, keys in (("comment", model.comments), ("like", model.likes)):
        for fact in [fact for fact in found if fact[0] == kind and not model.live(fact[1])]:
            del found[fact]
        found |= {(kind, *key): True for key in keys if not model.live(key[0])}
    return found


async def judge_writes(truth: Truth, model: FeedModel, database: Database) -> WriteVerdict:
    """Compare the tables with what both workloads were acknowledged. Counters and duplicated items must agree."""
    stored, problems = await facts_and_problems(database)
    verdict = judge_facts(truth, stored)
    verdict.others += problems
    verdict.add(judge_facts(truth_of_feed(model), feed_facts(model, stored)))
    return verdict
