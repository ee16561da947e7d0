"""The choice of the leases that an instance takes."""

from collections.abc import Sequence
from typing import Any

from datastore.change_streams.leases import Lease
from datastore.change_streams.shards.shard_reader import (
    ListedShard,
)
from pipelines.consumer.lease_balancer import LeaseBalancer, LeaseCandidate


def shards(*names: str) -> list[ListedShard]:
    return [ListedShard(name, None) for name in names]


def leases_to_take(
    listed: Sequence[ListedShard], *leases: Lease, working: Sequence[str] = (), later: float = 0.0
) -> Any:
    """Return the leases that "me" takes after it saw them unchanged for `later` seconds."""
    sharing = LeaseBalancer("me", 10.0)
    sharing.observe(leases, 100.0)
    sharing.observe(leases, 100.0 + later)
    return sharing.to_acquire(listed, leases, working, 100.0 + later)


def test_a_free_lease_is_taken_at_once_and_a_held_one_after_its_lifetime() -> None:
    held = Lease("b", 7, "other", 1.0)
    assert leases_to_take(shards("a", "b"), Lease("a", 3), held) == [LeaseCandidate("a", Lease("a", 3))]
    assert leases_to_take(shards("b"), held, later=9.9) == []
    assert leases_to_take(shards("b"), held, later=10.0) == [LeaseCandidate("b", held)]


def test_a_process_that_was_frozen_after_reading_the_leases_takes_none() -> None:
    sharing, held = LeaseBalancer("me", 10.0), Lease("a", 1, "other", 100.0)
    sharing.observe([held], 0.0)
    sharing.observe([held], 20.0)  # they were read at 2.9 seconds
    assert sharing.to_acquire(shards("a"), [held], (), 2.9) == []


def test_the_clock_of_another_instance_is_ignored_while_it_renews_its_lease() -> None:
    sharing, listed = LeaseBalancer("me", 10.0), shards("a")
    for step in range(30):
        lease = Lease("a", 1, "other", 5.0 * step)
        sharing.observe([lease], 5.0 * step)
        assert sharing.to_acquire(listed, [lease], (), 5.0 * step) == []


def test_no_more_than_a_fair_share_is_taken() -> None:
    other = Lease("e", 1, "other", 1.0)
    assert len(leases_to_take(shards("a", "b", "c", "d", "e"), other)) == 3  # of five shards, for two instances
    assert leases_to_take(shards("a", "b", "c", "d", "e"), other, working=["a", "b", "c"]) == []


def test_a_lease_is_stolen_from_an_instance_with_two_more() -> None:
    rich = [Lease(name, 1, "rich", 1.0) for name in "abc"]
    assert leases_to_take(shards(*"abc"), *rich) == [LeaseCandidate("a", rich[0], may_be_active=True)]
    assert leases_to_take(shards(*"abcd"), *rich, working=["d"]) == [LeaseCandidate("a", rich[0], may_be_active=True)]
    assert leases_to_take(shards(*"abcde"), *rich, working=["d", "e"]) == []
    assert leases_to_take(shards("a"), rich[0]) == []


def test_shards_still_worked_by_this_instance_are_not_stolen() -> None:
    others = [Lease(name, 2, "other", 1.0) for name in "abcdef"]
    assert leases_to_take(shards(*"abcdef"), *others, working=["a"]) == [
        LeaseCandidate("b", others[1], may_be_active=True)
    ]
    assert leases_to_take(shards(*"abc"), *others[:3], working=["a"]) == []


def test_a_child_waits_for_its_parent_while_that_is_listed() -> None:
    listed = [ListedShard("a", None), ListedShard("b", "a"), ListedShard("c", "gone")]
    assert leases_to_take(listed) == [LeaseCandidate("a"), LeaseCandidate("c")]
    assert leases_to_take(listed, Lease("a", 4, ended=True)) == [LeaseCandidate("b"), LeaseCandidate("c")]
