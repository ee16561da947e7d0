"""Cursors: a sealed cursor opens for its own field and arguments, and any other text is refused."""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from decimal import Decimal
from typing import Any

import orjson
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from hypothesis import assume, example, given
from hypothesis import strategies as st

from datastore.errors import BadCursor
from datastore.model.composite_keys import escape_part
from datastore.session.cursors import Cursors, binding, padded

CURSORS = Cursors(b"a secret of the test")
HERE = binding("BLIP-1 Query.sightings", {"area": "Downtown"})
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
KEYS = st.fixed_dictionaries(
    {"PK": TEXTS, "SK": TEXTS}, optional={"GSI1PK": TEXTS, "GSI1SK": TEXTS | st.integers(-(10**15), 10**15)}
)
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_+/= \n\t.é日\x00"


def raw_cursor(cursor: str) -> bytes:
    return urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))


def base64_text(content: bytes) -> str:
    return urlsafe_b64encode(content).rstrip(b"=").decode()


def assert_refused_cursor(cursor: str, where: bytes = HERE, cursors: Cursors = CURSORS) -> None:
    with pytest.raises(BadCursor) as bad:
        cursors.open(cursor, where)
    assert bad.value.extensions == {"code": "BAD_CURSOR"}


@given(key=KEYS)
def test_a_cursor_opens_to_its_key(key: dict[str, Any]) -> None:
    cursor = CURSORS.seal(key, HERE)

    assert CURSORS.open(cursor, HERE) == key
    assert CURSORS.seal(dict(reversed(key.items())), HERE) == cursor
    assert set(cursor) <= set(ALPHABET[:64])


def test_every_process_with_the_secret_makes_the_same_cursor() -> None:
    key = {"gsi1sk": Decimal("1." + "0" * 36 + "1"), "pk": "A"}

    cursor = Cursors(b"a secret of the test").seal(key, HERE)

    assert CURSORS.open(cursor, HERE) == key


@given(key=KEYS, where=st.integers(min_value=0))
def test_no_bit_can_be_flipped(key: dict[str, Any], where: int) -> None:
    content = bytearray(raw_cursor(CURSORS.seal(key, HERE)))
    place = where % (8 * len(content))
    content[place // 8] ^= 1 << place % 8

    assert_refused_cursor(base64_text(bytes(content)))


def test_no_bit_at_all_of_one_cursor_can_be_flipped() -> None:
    content = raw_cursor(CURSORS.seal({"PK": "AREA#Downtown", "SK": "SIGHTING#1#a"}, HERE))
    for place in range(8 * len(content)):
        changed = bytearray(content)
        changed[place // 8] ^= 1 << place % 8
        assert_refused_cursor(base64_text(bytes(changed)))


def test_no_prefix_or_suffix_of_a_cursor_is_valid() -> None:
    cursor = CURSORS.seal({"PK": "AREA#Downtown", "SK": "SIGHTING#1#a"}, HERE)
    content = raw_cursor(cursor)

    for length in range(len(cursor)):
        assert_refused_cursor(cursor[:length])
        assert_refused_cursor(cursor[len(cursor) - length :] if length else "")
    for length in range(len(content)):
        assert_refused_cursor(base64_text(content[:length]))


@given(key=KEYS, where=st.integers(min_value=0), character=st.sampled_from(ALPHABET))
def test_no_character_can_be_changed(key: dict[str, Any], where: int, character: str) -> None:
    cursor = CURSORS.seal(key, HERE)
    place = where % len(cursor)
    assume(cursor[place] != character)

    assert_refused_cursor(cursor[:place] + character + cursor[place + 1 :])


@given(key=KEYS, where=st.integers(min_value=0), character=st.sampled_from(ALPHABET))
def test_no_character_can_be_added(key: dict[str, Any], where: int, character: str) -> None:
    cursor = CURSORS.seal(key, HERE)
    place = where % (len(cursor) + 1)

    assert_refused_cursor(cursor[:place] + character + cursor[place:])


@pytest.mark.parametrize("length", range(1, 7))
def test_there_is_one_spelling_of_a_cursor(length: int) -> None:
    cursor = CURSORS.seal({"PK": "x" * length, "SK": ">>>???"}, HERE)
    unused = (
        -len(cursor) % 4
    )  # with 0, 1 or 2 characters of padding, so many pairs of bits of the last character are unused

    last = ALPHABET.index(cursor[-1])
    others = [cursor[:-1] + ALPHABET[last ^ bits] for bits in range(1, 4**unused)]
    others += [cursor + "=", cursor + "==", cursor + "=" * unused + "=", "=" + cursor, f" {cursor}", f"{cursor}\n"]
    others += [cursor.replace("-", "+").replace("_", "/") + ("" if set(cursor) & set("-_") else "+")]

    assert len(set(others)) >= 6
    for other in others:
        assert_refused_cursor(other)


@given(cursor=st.text(st.characters(), max_size=60))
@example(cursor="")
@example(cursor="\ud800")
@example(cursor="A" * 21)
@example(cursor="A" * 22)
@example(cursor="A" * 100_000)
def test_invalid_cursors_are_refused(cursor: str) -> None:
    assert_refused_cursor(cursor)


@given(key=KEYS, other=st.binary(max_size=40))
def test_a_cursor_belongs_to_its_field_and_arguments(key: dict[str, Any], other: bytes) -> None:
    assume(other != HERE)

    assert_refused_cursor(CURSORS.seal(key, HERE), other)


def test_no_byte_can_move_between_the_key_and_the_binding_of_a_cursor() -> None:
    content = raw_cursor(CURSORS.seal({"a": "b"}, b"here"))
    tag, key = content[:16], content[16:]

    for moved in range(1, len(key)):
        assert_refused_cursor(base64_text(tag + key[moved:]), b"here" + key[:moved])
    for moved in range(1, 5):
        assert_refused_cursor(base64_text(tag + b"here"[-moved:] + key), b"here"[:-moved])


@given(key=KEYS, secret=st.binary(max_size=40))
def test_a_cursor_of_another_secret_is_refused(key: dict[str, Any], secret: bytes) -> None:
    assume(secret.rstrip(b"\0") != b"a secret of the test")

    assert_refused_cursor(Cursors(secret).seal(key, HERE))


@pytest.mark.parametrize("character", ['"', "\\", "x", "日"])
def test_cursors_of_the_longest_keys_open(character: str) -> None:
    size = len(character.encode())
    partition, sort = escape_part(character * (2048 // size)), escape_part(character * (1024 // size))
    key = {"PK": partition, "SK": sort, "GSI1PK": partition, "GSI1SK": sort}

    assert CURSORS.open(CURSORS.seal(key, HERE), HERE) == key


def test_a_binding_is_the_field_and_its_arguments_in_any_order() -> None:
    one = binding("Query.sightings", {"area": "A", "limit": 1})

    assert binding("Query.sightings", {"limit": 1, "area": "A"}) == one
    assert (
        len({one, binding("Query.sightings", {"area": "A"}), binding("Query.watches", {"area": "A", "limit": 1})}) == 3
    )


# --- Encrypted cursors of personal lists ------------------------------------------------------------------------------


def refused_personal(cursor: str, where: bytes = HERE, cursors: Cursors = CURSORS) -> None:
    with pytest.raises(BadCursor) as bad:
        cursors.open(cursor, where, personal=True)
    assert bad.value.extensions == {"code": "BAD_CURSOR"}


@given(key=KEYS, other=st.binary(max_size=40), place=st.integers(min_value=0))
def test_an_encrypted_cursor_opens_only_unaltered_and_for_its_own_field(
    key: dict[str, Any], other: bytes, place: int
) -> None:
    cursor = CURSORS.seal(key, HERE, personal=True)

    assert CURSORS.open(cursor, HERE, personal=True) == key
    assert Cursors(b"a secret of the test").seal(dict(reversed(key.items())), HERE, personal=True) == cursor
    assert set(cursor) <= set(ALPHABET[:64])
    assume(other != HERE)
    refused_personal(cursor, other)
    refused_personal(cursor, cursors=Cursors(b"another secret"))
    changed = bytearray(raw_cursor(cursor))
    changed[place // 8 % len(changed)] ^= 1 << place % 8
    refused_personal(base64_text(bytes(changed)))


def test_an_encrypted_cursor_hides_the_length_of_the_key() -> None:
    emails = ["a" * length + "@example.com" for length in range(1, 33)]
    cursors = [CURSORS.seal({"email": email, "PK": "IMAGE#1"}, HERE, personal=True) for email in emails]
    plain = [CURSORS.seal({"email": email, "PK": "IMAGE#1"}, HERE) for email in emails]

    assert (len({*map(len, plain)}), len({*map(len, cursors)})) == (32, 2)


def test_a_cursor_encrypted_without_padding_is_refused() -> None:
    content = orjson.dumps({"PK": {"S": "IMAGE#1"}})
    cipher = AESSIV(hmac.digest(b"a secret of the test", b"personal cursor", "sha512"))

    assert CURSORS.open(base64_text(cipher.encrypt(padded(content), [HERE])), HERE, personal=True) == {"PK": "IMAGE#1"}
    refused_personal(base64_text(cipher.encrypt(content, [HERE])))
    refused_personal(base64_text(cipher.encrypt(padded(content) + bytes(32), [HERE])))


def test_an_encrypted_cursor_hides_the_key_and_is_no_plain_cursor() -> None:
    key = {"entityType": "USER", "PK": "USER#ada@example.com", "SK": "USER#ada@example.com"}
    hidden, plain_cursor = CURSORS.seal(key, HERE, personal=True), CURSORS.seal(key, HERE)

    assert b"ada@example.com" in raw_cursor(plain_cursor)
    assert b"ada" not in raw_cursor(hidden)
    assert_refused_cursor(hidden)
    refused_personal(plain_cursor)
    for place in range(8 * len(raw_cursor(hidden))):
        changed = bytearray(raw_cursor(hidden))
        changed[place // 8] ^= 1 << place % 8
        refused_personal(base64_text(bytes(changed)))
    for length in range(len(hidden)):
        refused_personal(hidden[:length])
    refused_personal("")
    refused_personal("A" * 100_000)
    refused_personal("\ud800")


def test_a_cursor_is_signed_with_hmac() -> None:
    """The signature is that of RFC 2104, however it is computed, so cursors of an earlier version remain valid."""
    sealed = raw_cursor(CURSORS.seal({"PK": "a", "SK": "b"}, HERE))
    key = hmac.digest(b"a secret of the test", b"cursor", "sha256")
    content = b'{"PK":{"S":"a"},"SK":{"S":"b"}}'

    assert sealed == hmac.digest(key, len(HERE).to_bytes(4, "big") + HERE + content, "sha256")[:16] + content


# Cursors of the previous format, which clients may still hold.
HANDED_OUT: tuple[tuple[dict[str, Any], str, str], ...] = (
    (
        {"PK": "AREA#Downtown", "SK": "SIGHTING#1#a"},
        "_fXE4m-CrBwh3ejo9hXz5XsiUEsiOnsiUyI6IkFSRUEjRG93bnRvd24ifSwiU0siOnsiUyI6IlNJR0hUSU5HIzEjYSJ9fQ",
        "8AITaIAvX1ZWBiU7wULKzNO5i7IMtrhNdXDalUiToyPcQ0jxy2n7coH7KLLsZg-ougvORUP8zQsRkiU03bpX3-JI-qN5gEB3zNrr-z6pSTw",
    ),
    (
        {"pk": "A", "gsi1sk": Decimal("1.50"), "gsi1pk": 17, "sk": 1e-7},
        "NB2xfzciFMyFDmn3nFgkkHsiZ3NpMXBrIjp7Ik4iOiIxNyJ9LCJnc2kxc2siOnsiTiI6IjEuNTAifSwicGsiOnsiUyI6IkEifSwic2siOnsiTiI6"
        "IjFlLTA3In19",
        "9dUjKw_9UT7mwn6jlVnzBsnRuYbApIQsYxKCALtP6zLfOIs7CgfWvDadW5cyXCay7MYXZ8d1BMkppSupccJgQPiXeGD3kb88RihsF6SFP6uhu2LE"
        "l1lJ1jc2VPu61JGN66ivKuU4cPeCyNuqzL0E_g",
    ),
    (
        {"SK": 'é日 "\\\n\x7f>?~', "PK": "\x01/+"},
        "flSXQJ676Y4qRPKuh36j1nsiUEsiOnsiUyI6Ilx1MDAwMS8rIn0sIlNLIjp7IlMiOiLDqeaXpSBcIlxcXG5_Pj9-In19",
        "mI_8bRfUVPfcogxz4zBDMRHdOrYnfPnxdEj8Mm9Jbjsmg-EYAgTPF8fK-pz8rcrzdV7UsnErEBFsnJkgeuQ7oT9zWGEG9ruQCNvHYJCuWV8",
    ),
)


@pytest.mark.parametrize(("key", "signed", "encrypted"), HANDED_OUT)
def test_cursors_of_the_previous_format_are_valid(key: dict[str, Any], signed: str, encrypted: str) -> None:
    assert (CURSORS.open(signed, HERE), CURSORS.open(encrypted, HERE, personal=True)) == (key, key)
    assert (CURSORS.seal(key, HERE), CURSORS.seal(key, HERE, personal=True)) == (signed, encrypted)
