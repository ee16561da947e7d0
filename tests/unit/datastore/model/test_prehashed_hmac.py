"""HMAC with its key taken up once: the same as hashlib's own."""

import hmac

from hypothesis import given, settings
from hypothesis import strategies as st

from datastore.model.prehashed_hmac import PrehashedHmac


@settings(max_examples=30)
@given(key=st.binary() | st.binary(min_size=63, max_size=66), texts=st.lists(st.binary(), min_size=1, max_size=3))
def test_every_text_has_the_code_that_the_standard_library_makes(key: bytes, texts: list[bytes]) -> None:
    mac = PrehashedHmac(key)

    assert [mac.digest(text) for text in texts] == [hmac.digest(key, text, "sha256") for text in texts]


@settings(max_examples=30)
@given(key=st.binary(), beginning=st.binary(max_size=200), ends=st.lists(st.binary(), min_size=1, max_size=3))
def test_a_beginning_that_was_taken_up_counts_for_every_end(key: bytes, beginning: bytes, ends: list[bytes]) -> None:
    mac = PrehashedHmac(key)
    begun = mac.after(beginning)

    assert [begun.hexdigest(end) for end in ends] == [mac.digest(beginning + end).hex() for end in ends]
