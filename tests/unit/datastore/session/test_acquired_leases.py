"""Tests of the decision whether a write has acquired a lease."""

from decimal import Decimal

import pytest

from datastore.session.writes import WriteResult


@pytest.mark.parametrize(
    ("written", "is_acquired"),
    [
        (WriteResult(True, None), True),
        (WriteResult(True, {"owner": "me", "fence": Decimal(3)}), True),
        (WriteResult(False, {"owner": "me", "fence": Decimal(3)}), True),
        (WriteResult(False, {"owner": "me", "fence": Decimal(4)}), False),
        (WriteResult(False, {"owner": "other", "fence": Decimal(3)}), False),
        (WriteResult(False, {"fence": Decimal(3)}), False),
        (WriteResult(False, None), False),
    ],
    ids=["put", "update", "lost response", "acquired again", "another owner", "released", "no item"],
)
def test_a_lease_is_acquired_also_if_the_response_was_lost(written: WriteResult, is_acquired: bool) -> None:
    assert written.has_acquired("me", 3) is is_acquired
