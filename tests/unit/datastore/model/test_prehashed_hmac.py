"""HMAC with a prehashed key: equal to that of the standard library."""

import hmac

from hypothesis import given, settings
from hypothesis import strategies as st

from datastore.model.prehashed_hmac import PrehashedHmac


@settings(max_examples=30)
@given(key=st.binary() | st.binary(min_size=63, max_size=66), texts=st.lists(st.binary(), min_size=1, max_size=3))
def test_codes_equal_those_of_the_standard_library(key: bytes, texts: list[bytes]) -> None:
    mac = PrehashedHmac(key)

    assert [mac.digest(text) for text in texts] == [hmac.digest(key, text, "sha256") for text in texts]


@settings(max_examples=30)
@given(key=st.binary(), beginning=st.binary(max_size=200), ends=st.lists(st.binary(), min_size=1, max_size=3))
def test_a_prehashed_prefix_applies_to_every_suffix(key: bytes, beginning: bytes, ends: list[bytes]) -> None:
    mac = PrehashedHmac(key)
    begun = mac.after(beginning)

    assert [begun.hexdigest(end) for end in ends] == [mac.digest(beginning + end).hex() for end in ends]
