"""Tests of the token bucket."""

from datastore.primitives.token_bucket import TokenBucket


def test_tokens_are_taken_as_far_as_there_are_enough() -> None:
    bucket = TokenBucket(10, 2, now=100.0)

    assert bucket.take(10, 100.0)
    assert not bucket.take(1, 100.25)
    assert bucket.take(1, 100.5)
    assert bucket.balance(100.5) == 0


def test_a_charge_may_leave_a_debt_which_is_refilled() -> None:
    bucket = TokenBucket(10, 2, now=0.0)

    assert bucket.charge(10, 0.0) == 0
    assert bucket.charge(3, 0.0) == -3
    assert not bucket.take(1, 1.5)
    assert bucket.balance(1.5) == 0
    assert bucket.charge(12, 1000.0) == -2


def test_a_bucket_is_at_most_full_and_keeps_its_balance_when_the_clock_is_set_back() -> None:
    bucket = TokenBucket(10, 2, now=100.0)

    assert bucket.balance(1000.0) == 10
    assert bucket.charge(4, 1000.0) == 6
    assert bucket.balance(50.0) == 6
    assert bucket.balance(51.0) == 8
