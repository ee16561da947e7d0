"""The roles that may use each field of the contract."""

from collections import defaultdict

import pytest

from datastore.errors import Forbidden, Unauthenticated
from datastore.keyspace import PATTERNS
from datastore.keyspace.sightings import BLIP
from datastore.model.access_patterns import AccessPattern, Operation, Who
from datastore.model.identity import Identity, Role
from resolvers.shared.authorization import require
from tests.support.contract import FIELDS, NO_FEED, PAGE_OF
from tests.support.photo_items import ADA
from tests.support.served import Served

OUTCOMES: dict[Who, dict[Role | None, list[str]]] = {
    Who.ANY: {None: [], Role.USER: [], Role.ADMIN: [], Role.SYSTEM: []},
    Who.USER: {None: ["UNAUTHENTICATED"], Role.USER: [], Role.ADMIN: [], Role.SYSTEM: []},
    # The callers of the contract own the data that they name.
    Who.OWNER: {None: ["UNAUTHENTICATED"], Role.USER: [], Role.ADMIN: [], Role.SYSTEM: []},
    Who.ADMIN: {None: ["UNAUTHENTICATED"], Role.USER: ["FORBIDDEN"], Role.ADMIN: [], Role.SYSTEM: ["FORBIDDEN"]},
    Who.SYSTEM: {None: ["UNAUTHENTICATED"], Role.USER: ["FORBIDDEN"], Role.ADMIN: ["FORBIDDEN"], Role.SYSTEM: []},
}


@pytest.mark.proof
@pytest.mark.parametrize("role", [None, *Role])
async def test_each_field_answers_allowed_callers_and_refuses_others(served: Served, role: Role | None) -> None:
    nothing_stored = defaultdict(lambda: "none", NO_FEED)
    answers = {
        name: await served.ask(
            field.text(nothing_stored),
            user=None if role is None else field.user,
            role=role or Role.USER,
            # The photo library knows its users by their email.
            email=ADA,
        )
        for name, field in FIELDS.items()
    }

    refused = {
        name: [] if role and Who(role.value) in also_allowed(name) else OUTCOMES[field.who][role]
        for name, field in FIELDS.items()
    }
    expected = {name: refused[name] or [code for code in (field.missing,) if code] for name, field in FIELDS.items()}
    wrong = {name: answer.codes for name, answer in answers.items() if answer.codes != expected[name]}
    assert [
        f"{PAGE_OF[name].file}, row {name!r}: {codes}, not {expected[name]}" for name, codes in wrong.items()
    ] == [], "A refused caller: authorize with `require`. An allowed one, without items: state the code as `missing`."
    assert [name for name, answer in answers.items() if refused[name] and answer.calls] == []


def also_allowed(name: str) -> set[Who]:
    """Return the further roles that may use all patterns of a field."""
    return set.intersection(*[set(pattern.also) for pattern in PATTERNS if name in pattern.fields])


@pytest.mark.parametrize(
    ("role", "codes"), [(Role.USER, ["FORBIDDEN"]), (Role.ADMIN, []), (Role.SYSTEM, [])], ids=lambda value: str(value)
)
async def test_another_users_data_is_for_admins_and_services(served: Served, role: Role, codes: list[str]) -> None:
    answer = await served.ask('{ watches(userId: "somebody") { watchId } }', user="ada", role=role)

    assert answer.codes == codes


@pytest.mark.parametrize("operation", ["Query", "UpdateItem"])
@pytest.mark.parametrize("role", Role)
def test_data_of_the_owner_alone_is_refused_to_admins_and_services_too(role: Role, operation: Operation) -> None:
    pattern = AccessPattern("T-1", "", BLIP, (operation,), Who.OWNER)
    ada = Identity("ada", role)

    assert require(ada, pattern, owner="ada") is require(ada, pattern) is ada
    with pytest.raises(Forbidden, match="another user"):
        require(ada, pattern, owner="grace")
    with pytest.raises(Unauthenticated):
        require(None, pattern, owner="ada")


async def test_me_is_the_caller_or_null(served: Served) -> None:
    me = "{ me { userId role email userProfile { reportTotal } } }"

    anonymous = await served.ask(me)
    admin = await served.ask(me, user="root", role=Role.ADMIN)

    assert anonymous.data == {"me": None}
    assert admin.data == {"me": {"userId": "root", "role": "ADMIN", "email": None, "userProfile": None}}


async def test_a_token_of_another_secret_is_refused_and_not_repeated(served: Served) -> None:
    forged = served.token()[:-4] + "AAAA"

    async with served.http.post(
        f"{served.url}/graphql", json={"query": "{ areas }"}, headers={"Authorization": f"Bearer {forged}"}
    ) as response:
        answer = await response.json(content_type=None)

    assert [error["extensions"]["code"] for error in answer["errors"]] == ["UNAUTHENTICATED"]
    assert forged not in str(answer)


async def test_an_expired_token_is_refused(served: Served) -> None:
    token = served.token()

    served.clock.forward(hours=2)
    async with served.http.post(
        f"{served.url}/graphql", json={"query": "{ areas }"}, headers={"Authorization": f"Bearer {token}"}
    ) as response:
        answer = await response.json(content_type=None)

    assert [error["extensions"]["code"] for error in answer["errors"]] == ["UNAUTHENTICATED"]
