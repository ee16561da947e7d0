"""No two identifiers become equal by folding, neither by case nor by normalisation."""

import ast
import json
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Literal
from unicodedata import category, normalize

import pytest

from datastore.feeds.hashtags import tag_name
from datastore.keyspace.photos import users as keys
from datastore.model import identifiers
from datastore.model.access_patterns import consistently
from datastore.model.identity import Role
from datastore.model.text_characters import has_forbidden_characters
from resolvers.shared import validation as validate
from tests.support.photo_items import photo, photo_user, put_library_items, user_id
from tests.support.served import Answer, Served
from tests.support.store_engines import ROOT

KATE, KELVIN = "kate@example.com", "\u212aate@example.com"
FORMS: tuple[Literal["NFC", "NFD", "NFKC", "NFKD"], ...] = ("NFC", "NFD", "NFKC", "NFKD")


def foldings(character: str) -> set[str]:
    """Return the texts that a character may become by Unicode's folding or normalisation."""
    cases = {character.lower(), character.upper(), character.casefold(), character.title()}
    return cases | {
        folded for form in FORMS for folded in (normalize(form, character), normalize(form, character).lower())
    }


# A character that is not assigned, or a surrogate, has no folding.
WITHOUT_FOLDINGS = {"Cn", "Co", "Cs"}


@cache
def dangerous() -> dict[str, set[str]]:
    """Return the characters outside ASCII that some folding maps onto ASCII, with their foldings.

    There are 1,400: KELVIN SIGN, LONG S, full-width letters, superscripts and ligatures among them.
    """
    found = {}
    for character in map(chr, range(0x80, 0x110000)):
        if category(character) not in WITHOUT_FOLDINGS:
            plain = {folded for folded in foldings(character) if folded and folded.isascii()}
            if plain:
                found[character] = plain
    return found


# For each ASCII character, the characters that look like it: all single characters of
# https://www.unicode.org/Public/security/latest/confusables.txt
LOOK_ALIKES: dict[str, str] = json.loads((ROOT / "tests" / "support" / "confusables.json").read_text())


def spoofs() -> Iterable[tuple[str, str]]:
    """Yield pairs of an ASCII text and another text that looks the same or that a folding makes the same."""
    for character, folded in dangerous().items():
        for plain in folded:
            yield plain, character
    for plain, others in LOOK_ALIKES.items():
        for other in others:
            yield plain, other
            yield plain, other.upper()


def test_the_dangerous_characters_are_found() -> None:
    assert len(dangerous()) > 1400
    assert {"\u212a", "\u017f", "\u0131", "\uff2b", "\ufb01", "\u1d4f", "\u24d4"} <= dangerous().keys()
    assert dangerous()["\u212a"] == {"k", "K"}


def in_case(text: str) -> set[str]:
    return {text, text.lower(), text.upper()}


KINDS: dict[str, tuple[str, Callable[[str], str | None]]] = {
    "email": ("a%s@example.com", identifiers.normal_email),
    "domain": ("ada@a%s.example", identifiers.normal_email),
    "userId": ("a%sb", lambda text: text if identifiers.is_user_id(text) else None),
    "id": ("a%sb", lambda text: validate.id("id", text) if not has_forbidden_characters(text) else None),
    "tag": ("a%sb", tag_name),
    "code": ("A%sB", identifiers.ascii_upper),
}


@pytest.mark.parametrize("kind", KINDS)
def test_no_variant_equals_another_identifier(kind: str) -> None:
    form, normal = KINDS[kind]

    taken = [
        (plain, ascii(spoof))
        for plain, spoof in spoofs()
        if (known := {normal(form % case) for case in in_case(plain)} - {None})
        and known & {normal(form % case) for case in {spoof, spoof.lower(), spoof.upper()} if not case.isascii()}
    ]

    assert taken == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_normal_form_is_stable(kind: str) -> None:
    form, normal = KINDS[kind]

    changed = [
        ascii(character)
        for character in (*dangerous(), *"aZ\u00c9\u0130\u1e9e\u03a3\u03c2\u2126\u212b\u0149")
        if (found := normal(form % character)) is not None and normal(found) != found
    ]

    assert changed == []


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        ("Ada@Example.COM", "ada@example.com"),
        (" ada@example.com", None),
        ("ada@example.com ", None),
        ("m\u00fcller@example.com", "m\u00fcller@example.com"),
        ("M\u00fcller@Example.com", "m\u00fcller@example.com"),
        ("M\u00dcLLER@example.com", None),
        ("mu\u0308ller@example.com", None),
        (KELVIN, None),
        ("\uff4bate@example.com", "\uff4bate@example.com"),
        ("ka\u200bte@example.com", None),
        ("ka\x00te@example.com", None),
        ("\u3000kate@example.com", None),
        ("kate@example.com\n", None),
        ("kate@@example.com", None),
        ("", None),
        ("a" * 250 + "@x.org", None),
    ],
    ids=ascii,
)
def test_an_email_has_one_form(given: str, normal: str | None) -> None:
    assert identifiers.normal_email(given) == normal


@pytest.mark.parametrize(
    ("word", "tag"),
    [
        ("#Kate", "kate"),
        ("\u212aate", None),
        ("CAF\u00c9", "caf\u00e9"),
        ("cafe\u0301", "caf\u00e9"),
        ("STRASSE", "strasse"),
        ("Stra\u00dfe", "stra\u00dfe"),
        ("\u0130stanbul", "i\u0307stanbul"),
        ("\u0131st", "\u0131st"),
        ("\u017fun", "\u017fun"),
        ("\u6771\u4eac", "\u6771\u4eac"),
        ("\u041c\u041e\u0421\u041a\u0412\u0410", "\u043c\u043e\u0441\u043a\u0432\u0430"),
    ],
    ids=ascii,
)
def test_a_tag_may_have_any_script(word: str, tag: str | None) -> None:
    assert tag_name(word) == tag


# Through the API


async def as_email(served: Served, query: str, email: str, sub: str = "mallory", **variables: Any) -> Answer:
    return await served.ask(query, variables, user=sub, email=email)


TAKE_OVER = """mutation ($id: ID!) {
  updatePhotoUser(input: {displayName: "Mallory"}) { displayName }
  updatePhoto(id: "hers", takenAt: "2023-01-01T00:00:00Z", input: {description: "mine"}) { imageId }
  deletePhoto(id: "hers") { imageId }
  cancelPhotoUpload(id: $id)
}"""


@pytest.mark.parametrize(
    "email",
    [
        KELVIN,
        KELVIN.upper(),
        "\uff4bate@example.com",
        "\u043aate@example.com",
        "kat\u212e@example.com",
        "kate@exa\u217fple.com",
    ],
    ids=ascii,
)
async def test_a_token_with_a_look_alike_email_is_not_accepted_as_kate(served: Served, email: str) -> None:
    await put_library_items(served, photo_user(KATE), photo("hers", KATE))

    me = await as_email(served, "{ me { photoUser { displayName } } photos { nodes { email } } }", email)
    acts = await as_email(served, TAKE_OVER, email, id="0197a7e5-0000-7000-8000-000000000000")
    by_email = await as_email(served, f'{{ photoUser(email: "{KATE}") {{ displayName }} }}', email)

    assert me.data == {"me": {"photoUser": None}, "photos": {"nodes": [{"email": None}]}}
    assert set(acts.codes) <= {"FORBIDDEN", "NOT_FOUND"}
    assert by_email.codes == ["FORBIDDEN"]
    assert by_email.calls == []
    assert await served.store().get(consistently(keys.PHOTO_USER), keys.user(KATE)) == photo_user(KATE)
    hers = await as_email(served, "{ photos { nodes { description email } } }", KATE)
    assert hers.data == {"photos": {"nodes": [{"description": "Photo hers", "email": KATE}]}}


async def test_an_email_outside_ascii_cannot_enter_the_library(served: Served) -> None:
    create = "mutation ($input: CreatePhotoUserInput!) { createPhotoUser(input: $input) { userId } }"
    given = {"displayName": "Mallory"}

    kelvin = await as_email(served, create, KELVIN, input=given)
    cyrillic = await as_email(served, create, "\u043aate@example.com", input=given)
    named = await served.ask(create, {"input": given | {"email": KELVIN}}, user="root", role=Role.ADMIN)

    assert (kelvin.codes, cyrillic.codes, named.codes) == (["FORBIDDEN"], ["BAD_USER_INPUT"], ["BAD_USER_INPUT"])
    assert [answer.calls for answer in (kelvin, cyrillic, named)] == [[], [], []]


async def test_a_user_with_an_email_of_an_earlier_form_stays_a_user(served: Served) -> None:
    stored = "m\u00fcller@example.com"
    await put_library_items(served, photo_user(stored), photo("a", stored))

    own = await as_email(
        served, "{ me { photoUser { email photos { nodes { imageId } } } } }", "M\u00fcller@Example.com"
    )
    renamed = await as_email(served, 'mutation { updatePhotoUser(input: {displayName: "M"}) { displayName } }', stored)
    read = await served.ask(f'{{ photoUser(id: "{user_id(served, stored)}") {{ displayName }} }}')

    assert own.data["me"]["photoUser"] == {"email": stored, "photos": {"nodes": [{"imageId": "a"}]}}
    assert renamed.data == {"updatePhotoUser": {"displayName": "M"}}
    assert read.data == {"photoUser": {"displayName": "M"}}


async def test_a_tag_of_a_look_alike_lists_no_posts_of_the_tag(served: Served) -> None:
    assert (await served.ask('mutation { createUser(input: {name: "A"}) { name } }', user="ada")).errors is None
    post = "mutation ($text: String!) { createPost(input: {text: $text}) { tags } }"
    ask = "query ($tag: String!) { postsByTag(tag: $tag) { nodes { text } } }"

    tagged = [
        (await served.ask(post, {"text": text}, user="ada")).data["createPost"]["tags"]
        for text in ("#kate", "#CAF\u00c9", "#\u043aate")
    ]
    answers = [await served.ask(ask, {"tag": tag}) for tag in ("KATE", "cafe\u0301", "\u041aATE", "\u212aate")]

    assert tagged == [["kate"], ["caf\u00e9"], ["\u043aate"]]
    texts = [answer.data and [node["text"] for node in answer.data["postsByTag"]["nodes"]] for answer in answers]
    assert texts == [["#kate"], ["#CAF\u00c9"], ["#\u043aate"], None]
    assert answers[-1].codes == ["BAD_USER_INPUT"]


async def test_a_league_with_a_look_alike_code_is_another_league(served: Served) -> None:
    put_league = 'mutation ($id: ID!, $code: String!) { putLeague(id: $id, input: {name: "L", code: $code}) { code } }'

    codes = [
        (await served.ask(put_league, {"id": str(at), "code": code}, user="ops", role=Role.SYSTEM)).data["putLeague"][
            "code"
        ]
        for at, code in enumerate(("ipl", "\u0131pl", "\uff29pl", "Stra\u00dfe"))
    ]

    assert codes == ["IPL", "\u0131PL", "\uff29PL", "STRA\u00dfE"]


async def test_a_token_with_spaces_around_its_email_has_no_user_in_the_library(served: Served) -> None:
    await put_library_items(served, photo_user(KATE))

    for email in (f"{KATE} ", f" {KATE}"):
        answer = await as_email(served, "{ me { photoUser { displayName } } }", email)
        changed = await as_email(
            served, 'mutation { updatePhotoUser(input: {displayName: "M"}) { displayName } }', email
        )

        assert (answer.data, changed.codes) == ({"me": {"photoUser": None}}, ["FORBIDDEN"])


@pytest.mark.parametrize(
    "sub",
    [
        "ada\x00",
        "\nada",
        "ada\u200b",
        "\u202eada",
        "ada\U000e0041",
        "ada\u034f",
        "ada\u1160",
        "ada\u17b4",
        "ada\ufe0f",
        "ada\U000e0100",
        "ada\u2800",
        "ada\uffff",
        "ada\ufdd0",
        "ada\u2065",
        "ada" + "\u0301" * 31,
        "ada" + "\u20dd" * 31,
    ],
    ids=ascii,
)
async def test_a_token_whose_subject_hides_something_is_refused(served: Served, sub: str) -> None:
    answer = await served.ask("{ me { userId } }", user=sub)

    assert answer.status == 401
    assert answer.codes == ["UNAUTHENTICATED"]
    assert "holds control characters or invisible ones" in (answer.errors or [])[0]["message"]


@pytest.mark.parametrize("sub", ["x" * 257, "\u20ac" * 86, "\U0001f40d" * 65, "#" * 86, "%" * 86], ids=ascii)
async def test_a_token_whose_subject_makes_keys_too_long_is_refused(served: Served, sub: str) -> None:
    answer = await served.ask("{ me { userId } }", user=sub)

    assert (answer.status, answer.codes) == (401, ["UNAUTHENTICATED"])
    assert "longer than 256 bytes of UTF-8" in (answer.errors or [])[0]["message"]


async def test_users_are_distinguished_by_every_character(served: Served) -> None:
    subs = ["kate", "Kate", "\u212aate", "\uff4bate", "kate ", "\u043aate"]
    for sub in subs:
        named = {"input": {"name": f"I am {sub!a}"}}
        create = "mutation ($input: CreateUserInput!) { createUser(input: $input) { userId } }"
        assert (await served.ask(create, named, user=sub)).data == {"createUser": {"userId": sub}}

    names = [
        (await served.ask("query ($id: ID!) { user(id: $id) { name } }", {"id": sub})).data["user"]["name"]
        for sub in subs
    ]

    assert names == [f"I am {sub!a}" for sub in subs]


# The uses of Unicode's foldings, with the reason why each is allowed. Comparisons of identifiers use `identifiers`.
FOLDS = {
    "datastore/model/text_characters.py": "shown, not compared; text of a file",
    "datastore/engine/engine.py": "the name of this machine's architecture",
    "datastore/engine/access_key.py": "names of headers",
    "datastore/engine/process.py": "bytes of an HTTP answer",
    "datastore/model/identifiers.py": "the one place",
    "datastore/engine/programs.py": "the name of this machine's architecture",
    "datastore/infrastructure/cloudformation.py": "declared names of tables",
    "datastore/infrastructure/terraform.py": "names of properties",
    "datastore/primitives/header_names.py": "names of headers",
    "datastore/matches/cricket.py": "words of a provider's status",
    "datastore/matches/devices.py": "a stored platform: one of an enum",
    "datastore/matches/display.py": "shown, not compared; a provider's word",
    "datastore/engine/ministack_server.py": "names of headers",
    "datastore/photos/metadata/exif.py": "shown, not compared; a camera's make",
    "datastore/photos/image_types.py": "the name of an enum's member",
    "datastore/matches/active_matches.py": "the names of an enum's members",
    "datastore/matches/live_activities.py": "the names of an enum's members",
    "datastore/dynamodb/records.py": "names of key attributes",
    "datastore/model/access_patterns.py": "words that DynamoDB reserves",
    "datastore/search/opensearch_index.py": "the prefix of tables in the name of an index",
    "datastore/stored_items.py": "names of classes on a page",
    "datastore/search/folding.py": "words that are searched, where case and accents do not matter",
    "datastore/dynamodb/http1/connection.py": "bytes of an HTTP head",
}


@pytest.mark.proof
@pytest.mark.parametrize("layer", ["datastore", "resolvers", "schema"])
def test_identifiers_are_folded_in_one_module(layer: str) -> None:
    folding = {"lower", "upper", "casefold", "title", "swapcase", "capitalize", "normalize"}
    found = {
        str(source.relative_to(ROOT))
        for source in sorted((ROOT / layer).rglob("*.py"))
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.Call)
        and (name := node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", ""))
        and name in folding
    }

    assert found <= FOLDS.keys() | {"resolvers/shared/user_text.py"}
