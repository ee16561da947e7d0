"""Users of the photo library: access to their attributes (SPARKS-1, SPARKS-4, SPARKS-W1), and their ids."""

import asyncio
import hmac
from base64 import urlsafe_b64encode
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from hypothesis import assume, example, given
from hypothesis import strategies as st

from datastore.database import StoreOptions
from datastore.keyspace.photos import users as keys
from datastore.model.access_patterns import consistently
from datastore.model.identity import Role
from datastore.photos.encrypted_user_ids import MAX_LENGTH, UserIds
from runtime.container import Gateway
from server.settings import Settings
from tests.support.answers import codes_and_fields
from tests.support.feed_steps import assert_paged
from tests.support.photo_items import ADA, EVE, ask_as, photo, photo_user, put_library_items, user_id
from tests.support.served import SECRET, Answer, Served

NOON, LONG_AGO = "2026-06-25T12:00:00.000Z", "2023-01-01T00:00:00.000Z"
SHOWN = "userId email displayName uploadLimit uploadCount createdAt"
CREATE = f"mutation ($input: CreatePhotoUserInput!) {{ createPhotoUser(input: $input) {{ {SHOWN} }} }}"
UPDATE = (
    f"mutation ($id: ID, $input: UpdatePhotoUserInput!) {{ updatePhotoUser(id: $id, input: $input) {{ {SHOWN} }} }}"
)


async def create_photo_user(served: Served, me: str | None = ADA, role: Role = Role.USER, **given: Any) -> Answer:
    answer: Answer = await ask_as(served, CREATE, me, role, input={"displayName": "Ada", **given})
    return answer


async def change_photo_user(
    served: Served, me: str | None = ADA, role: Role = Role.USER, *, id: str | None = None, **given: Any
) -> Answer:
    answer: Answer = await ask_as(served, UPDATE, me, role, id=id, input=given)
    return answer


async def stored_photo_user(served: Served, email: str = ADA) -> Any:
    return await served.store().get(consistently(keys.PHOTO_USER), keys.user(email))


# Creating.


async def test_a_new_profile_is_returned_as_stored(served: Served) -> None:
    answer = await create_photo_user(served, "ADA@Example.com", displayName="  Ada L. ")

    assert answer.errors is None
    assert answer.data["createPhotoUser"] == {
        "userId": user_id(served, ADA),
        "email": ADA,
        "displayName": "Ada L.",
        "uploadLimit": 100,
        "uploadCount": None,
        "createdAt": NOON,
    }
    assert await stored_photo_user(served) == {
        "PK": f"USER#{ADA}",
        "SK": f"USER#{ADA}",
        "entityType": "USER",
        "email": ADA,
        "displayName": "Ada L.",
        "uploadLimit": 100,
        "createdAt": "2026-06-25T12:00:00.000Z",
    }
    assert answer.made == ["PutItem sparks"]


async def test_a_repeated_creation_leaves_the_profile(served: Served) -> None:
    await put_library_items(served, photo_user(displayName="First", uploadLimit=7))
    before = await stored_photo_user(served)

    one, two = await asyncio.gather(
        create_photo_user(served, displayName="Second"), create_photo_user(served, displayName="Third")
    )

    first = {
        "userId": user_id(served, ADA),
        "email": ADA,
        "displayName": "First",
        "uploadLimit": 7,
        "uploadCount": None,
        "createdAt": LONG_AGO,
    }
    assert one.data["createPhotoUser"] == two.data["createPhotoUser"] == first
    assert await stored_photo_user(served) == before


async def test_an_admin_creates_users_with_a_limit(served: Served) -> None:
    answer = await create_photo_user(served, "root@example.com", Role.ADMIN, email="Eve@Example.com", uploadLimit=0)

    assert answer.data["createPhotoUser"]["email"] == EVE
    assert answer.data["createPhotoUser"]["uploadLimit"] == 0
    assert (await stored_photo_user(served, EVE))["uploadLimit"] == 0
    assert await stored_photo_user(served, "root@example.com") is None


@pytest.mark.parametrize("role", [Role.USER, Role.SYSTEM])
@pytest.mark.parametrize("given", [{"email": EVE}, {"uploadLimit": 5}, {"email": ADA, "uploadLimit": 5}], ids=str)
async def test_other_callers_may_give_neither_the_email_nor_the_limit(
    served: Served, role: Role, given: dict[str, Any]
) -> None:
    answer = await create_photo_user(served, role=role, **given)

    assert answer.codes == ["FORBIDDEN"]
    assert (answer.errors or [])[0]["message"] == f"`{list(given)[-1]}` is for admins only."
    assert answer.calls == []


async def test_a_user_may_give_the_own_email(served: Served) -> None:
    entered = await create_photo_user(served, email="ADA@example.com")
    me = (await ask_as(served, "{ me { photoUser { userId } } }")).data["me"]["photoUser"]["userId"]
    changed = await ask_as(served, UPDATE, id=me, input={"displayName": "Countess"})

    assert (entered.errors, changed.errors) == (None, None)
    assert (await stored_photo_user(served, ADA))["displayName"] == "Countess"


async def test_a_profile_requires_a_verified_email(served: Served) -> None:
    for role in Role:
        for email in (None, "  "):
            answer = await served.ask(CREATE, {"input": {"displayName": "A"}}, user="ada", role=role, email=email)
            assert answer.codes == ["FORBIDDEN"]
            assert "requires a token with a verified email" in (answer.errors or [])[0]["message"]
            assert answer.calls == []

    assert (await served.ask(CREATE, {"input": {"displayName": "A"}})).codes == ["UNAUTHENTICATED"]
    assert (await served.ask(UPDATE, {"input": {"displayName": "A"}})).codes == ["UNAUTHENTICATED"]


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"displayName": ""}, "displayName"),
        ({"displayName": " \u200b "}, "displayName"),
        ({"displayName": "x" * 101}, "displayName"),
        ({"uploadLimit": -1}, "uploadLimit"),
        ({"uploadLimit": 1_000_001}, "uploadLimit"),
        ({"email": "ada"}, "email"),
        ({"email": "a b@example.com"}, "email"),
        ({"email": f"{'a' * 250}@x.org"}, "email"),
    ],
    ids=str,
)
async def test_values_outside_the_limits_are_refused(served: Served, given: dict[str, Any], field: str) -> None:
    await put_library_items(served, photo_user())
    before = await stored_photo_user(served)

    answer = await create_photo_user(served, role=Role.ADMIN, **given)
    assert codes_and_fields(answer) == [("BAD_USER_INPUT", field)]
    if field != "email":
        assert codes_and_fields(await change_photo_user(served, role=Role.ADMIN, **given)) == [
            ("BAD_USER_INPUT", field)
        ]
    assert await stored_photo_user(served) == before


# Changing.


async def test_a_user_changes_the_own_name_only(served: Served) -> None:
    await put_library_items(served, photo_user(uploadCount=3, since="long"))

    answer = await change_photo_user(served, displayName=" Countess ")

    assert answer.data["updatePhotoUser"] == {
        "userId": user_id(served, ADA),
        "email": ADA,
        "displayName": "Countess",
        "uploadLimit": 100,
        "uploadCount": 3,
        "createdAt": LONG_AGO,
    }
    assert await stored_photo_user(served) == photo_user(uploadCount=3, since="long", displayName="Countess", version=1)
    assert answer.made == ["UpdateItem sparks"]


async def test_an_admin_changes_the_limit_of_any_user_by_id(served: Served) -> None:
    await put_library_items(served, photo_user(), photo_user(EVE))

    answer = await change_photo_user(served, None, Role.ADMIN, id=user_id(served, EVE), uploadLimit=3)

    assert answer.data["updatePhotoUser"]["uploadLimit"] == 3
    assert (await stored_photo_user(served, EVE))["uploadLimit"] == 3
    assert await stored_photo_user(served) == photo_user()


async def test_only_an_admin_changes_others_or_the_limit(served: Served) -> None:
    await put_library_items(served, photo_user(), photo_user(EVE))

    for role in (Role.USER, Role.SYSTEM):
        for said in ({"id": user_id(served, EVE), "displayName": "x"}, {"uploadLimit": 3}, {"uploadLimit": None}):
            answer = await change_photo_user(served, role=role, **said)
            assert answer.codes == ["FORBIDDEN"]
            assert answer.calls == []
    assert [await stored_photo_user(served), await stored_photo_user(served, EVE)] == [photo_user(), photo_user(EVE)]


async def test_a_change_without_fields_or_of_a_missing_user_is_refused(served: Served) -> None:
    await put_library_items(served, photo_user(EVE))

    assert codes_and_fields(await change_photo_user(served)) == [("BAD_USER_INPUT", "input")]
    assert codes_and_fields(await change_photo_user(served, displayName=None)) == [("BAD_USER_INPUT", "displayName")]
    assert codes_and_fields(await change_photo_user(served, role=Role.ADMIN, uploadLimit=None)) == [
        ("BAD_USER_INPUT", "uploadLimit")
    ]
    assert codes_and_fields(await change_photo_user(served, role=Role.ADMIN, id="x", uploadLimit=1)) == [
        ("BAD_USER_INPUT", "id")
    ]
    missing = await change_photo_user(served, displayName="Ada")
    assert codes_and_fields(missing) == [("NOT_FOUND", None)]
    assert "createPhotoUser comes first" in (missing.errors or [])[0]["message"]
    assert await stored_photo_user(served) is None


# Reading.


async def test_only_admins_list_users(served: Served) -> None:
    await put_library_items(served, photo_user(), photo_user(EVE, uploadCount=2), photo("a"))
    ask = "{ photoUsers { nodes { userId email displayName uploadCount } } }"

    assert (await served.ask(ask)).codes == ["UNAUTHENTICATED"]
    for role in (Role.USER, Role.SYSTEM):
        refused = await ask_as(served, ask, role=role)
        assert (refused.codes, refused.calls) == (["FORBIDDEN"], [])
    answer = await ask_as(served, ask, "root@example.com", Role.ADMIN)
    assert answer.data["photoUsers"]["nodes"] == [
        {"userId": user_id(served, ADA), "email": ADA, "displayName": "ada", "uploadCount": None},
        {"userId": user_id(served, EVE), "email": EVE, "displayName": "eve", "uploadCount": 2},
    ]
    assert answer.made == ["Query sparks.entityType-PK-index"]


async def test_the_list_of_users_is_paged_both_ways_in_both_orders(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = list("abcde")
    await put_library_items(served, *[photo_user(f"{name}@example.com", displayName=name) for name in names])

    asked = served.ask
    monkeypatch.setattr(served, "ask", lambda query: asked(query, user="root", role=Role.ADMIN))
    await assert_paged(served, "photoUsers(%s)", "displayName", names)
    await assert_paged(served, "photoUsers(order: DESCENDING, %s)", "displayName", names[::-1])


async def test_users_find_their_own_profile_by_their_verified_email(served: Served) -> None:
    ask = "{ me { photoUser { displayName email photos { nodes { imageId } } } } }"
    await put_library_items(served, photo_user(), photo("a"), photo("b", EVE))

    mine = {"displayName": "ada", "email": ADA, "photos": {"nodes": [{"imageId": "a"}]}}
    assert (await ask_as(served, ask, "Ada@Example.COM")).data["me"]["photoUser"] == mine
    for answer in (await ask_as(served, ask, EVE), await served.ask(ask, user="ada")):
        assert answer.errors is None
        assert answer.data["me"]["photoUser"] is None
    assert (await served.ask(ask)).data["me"] is None


async def test_users_with_another_spelling_of_the_email_are_found_by_id(served: Served) -> None:
    await put_library_items(served, photo_user("Ada@Example.com"), photo("a", "Ada@Example.com"))

    ask = "{ photos { nodes { userId email user { userId email photos { nodes { imageId } } } } } }"
    own, others = await ask_as(served, ask), await ask_as(served, ask, EVE)

    id = user_id(served, "Ada@Example.com")

    def shown(email: str | None) -> Any:
        seen = {"userId": id, "email": email, "photos": {"nodes": [{"imageId": "a"}]}}
        return [{"userId": id, "email": email, "user": seen}]

    assert own.data["photos"]["nodes"] == shown("Ada@Example.com")
    assert others.data["photos"]["nodes"] == shown(None)


# Whether an email has an account.

EXISTING, UNKNOWN = ADA, "nobody@example.com"
BY_EMAIL = "{ photoUser(email: %s, consistent: %s) { userId displayName } }"


@pytest.mark.parametrize("consistent", ["false", "true"])
@pytest.mark.parametrize(
    ("email", "role", "code"),
    [
        (None, Role.USER, "UNAUTHENTICATED"),
        (EVE, Role.USER, "FORBIDDEN"),
        (EVE, Role.SYSTEM, "FORBIDDEN"),
        ("", Role.SYSTEM, "FORBIDDEN"),
        ("\u212ave@example.com", Role.USER, "FORBIDDEN"),
    ],
)
async def test_other_callers_cannot_learn_whether_an_email_has_an_account(
    served: Served, email: str | None, role: Role, code: str, consistent: str
) -> None:
    await put_library_items(served, photo_user(EXISTING), photo_user(EVE), photo("a", EXISTING))

    answers = [
        await served.ask(
            BY_EMAIL % (f'"{asked}"', consistent), user=None if email is None else "eve", role=role, email=email
        )
        for asked in (EXISTING, UNKNOWN, EXISTING.upper())
    ]

    assert [(answer.data, answer.codes, answer.calls) for answer in answers] == [({"photoUser": None}, [code], [])] * 3
    assert answers[0].errors == answers[1].errors == answers[2].errors


async def test_users_find_themselves_by_email_and_admins_any_user(served: Served) -> None:
    await put_library_items(served, photo_user(EXISTING))
    ask = BY_EMAIL % (f'"{EXISTING.title()}"', "false")

    own = await ask_as(served, ask)
    admins = await ask_as(served, ask, "root@example.com", Role.ADMIN)
    unknown = await ask_as(served, BY_EMAIL % (f'"{UNKNOWN}"', "false"), "root@example.com", Role.ADMIN)

    found = {"photoUser": {"userId": user_id(served, EXISTING), "displayName": "ada"}}
    assert (own.data, admins.data, unknown.data) == (found, found, {"photoUser": None})
    assert own.made == admins.made == unknown.made == ["GetItem sparks"]


async def test_every_caller_finds_a_user_by_id_without_the_email(served: Served) -> None:
    await put_library_items(served, photo_user(EXISTING))
    ask = f'{{ photoUser(id: "{user_id(served, EXISTING)}") {{ displayName email }} }}'

    for answer in (await served.ask(ask), await ask_as(served, ask, EVE), await ask_as(served, ask, EVE, Role.SYSTEM)):
        assert (answer.errors, answer.data) == (None, {"photoUser": {"displayName": "ada", "email": None}})


async def test_a_list_of_photos_by_email_does_not_show_whether_there_is_an_account(served: Served) -> None:
    await put_library_items(served, photo_user(EXISTING))

    for email in (None, EVE):
        answers = [
            await ask_as(
                served, f'{{ photosByUser(email: "{asked}") {{ nodes {{ imageId }} lastEvaluatedKey }} }}', email
            )
            for asked in (EXISTING, UNKNOWN)
        ]
        assert [answer.data for answer in answers] == [{"photosByUser": {"nodes": [], "lastEvaluatedKey": None}}] * 2
        assert [answer.made for answer in answers] == [["Query sparks.email-PK-index"]] * 2
        assert answers[0].errors is answers[1].errors is None


async def test_forbidden_requests_for_others_have_the_same_refusal_for_every_email(served: Served) -> None:
    await put_library_items(served, photo_user(EXISTING))

    created = [await create_photo_user(served, EVE, email=email) for email in (EXISTING, UNKNOWN)]
    changed = [
        await change_photo_user(served, EVE, id=user_id(served, email), displayName="x")
        for email in (EXISTING, UNKNOWN)
    ]

    for one, other in (created, changed):
        assert one.errors == other.errors
        assert (one.codes, one.calls, other.calls) == (["FORBIDDEN"], [], [])


# Ids.

IDS = UserIds(b"a secret of the test")
EMAILS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)


@given(email=EMAILS, other=EMAILS)
@example(email="ada@example.com", other="ada@example.co")
@example(email="ada@example.com", other="Ada@example.com")
@example(email="x" * 254, other="x" * 253)
@example(email="日" * 84, other="\0")
def test_an_id_is_the_same_in_every_process_with_the_secret(email: str, other: str) -> None:
    id = IDS.encrypt(email)

    assert IDS.decrypt(id) == email
    assert UserIds(b"a secret of the test").encrypt(email) == id
    assert (IDS.encrypt(other) == id) is (other == email)
    assert UserIds(b"another").decrypt(id) is None


@given(text=st.text(st.characters(), max_size=80), email=EMAILS, place=st.integers(min_value=0))
@example(text="\ud800", email="a", place=0)
@example(text="A" * (MAX_LENGTH + 1), email="a", place=0)
def test_any_other_text_is_no_id(text: str, email: str, place: int) -> None:
    id = IDS.encrypt(email)
    at = place % len(id)
    changed = id[:at] + ("A" if id[at] != "A" else "B") + id[at + 1 :]

    assert IDS.decrypt(changed) is None
    assert [IDS.decrypt(spelt) for spelt in (id + "=", id + "\n", " " + id, id[:-1], id + "A", "")] == [None] * 6
    assume(text != id)
    assert IDS.decrypt(text) is None
    assert IDS.decrypt(id + text if text else "=") is None


def test_an_id_reveals_only_whether_the_email_is_unusually_long() -> None:
    lengths = [len(IDS.encrypt("a" * length)) for length in (1, 5, 31, 32, 63, 64)]
    assert lengths == [64, 64, 64, 107, 107, 150]
    assert not set(IDS.encrypt("ada@example.com")) & set("@.+/=")
    assert len(IDS.encrypt("日" * 84)) <= MAX_LENGTH


@pytest.mark.parametrize("padding", [b"", b"\0" * 17, b"\x80" + b"\0" * 15, b"\x80" + b"\0" * 48, b"\x81" + b"\0" * 16])
def test_a_wrongly_padded_ciphertext_is_no_id(padding: bytes) -> None:
    cipher = AESSIV(hmac.digest(b"a secret of the test", b"photo user", "sha512"))

    def made(content: bytes) -> str:
        return urlsafe_b64encode(cipher.encrypt(content, None)).rstrip(b"=").decode()

    assert made(b"ada@example.com\x80" + bytes(16)) == IDS.encrypt("ada@example.com")
    assert IDS.decrypt(made(b"ada@example.com" + padding)) is None


# Tokens.


async def test_demo_tokens_have_the_emails_of_the_library() -> None:
    gateway = Gateway(Settings(secret=SECRET, demo=True), StoreOptions("embedded"))

    seen = [await gateway.server.tokens.identify(offered["token"]) for offered in gateway.server.demo_tokens()]

    assert [(who.role, who.email) for who in seen if who] == [
        (Role.USER, "demo@example.com"),
        (Role.ADMIN, "admin@example.com"),
        (Role.SYSTEM, None),
    ]
