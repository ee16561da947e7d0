"""The roles that may use each field of the contract."""

import pytest

from datastore.model.access_patterns import Who
from datastore.model.identity import Role
from tests.support.contract import ASK, CONTRACT
from tests.support.photo_items import ADA
from tests.support.served import Served

WHO = {name: who for _, name, _, who in CONTRACT}
OUTCOMES: dict[Who, dict[Role | None, list[str]]] = {
    Who.ANY: {None: [], Role.USER: [], Role.ADMIN: [], Role.SYSTEM: []},
    Who.USER: {None: ["UNAUTHENTICATED"], Role.USER: [], Role.ADMIN: [], Role.SYSTEM: []},
    Who.ADMIN: {None: ["UNAUTHENTICATED"], Role.USER: ["FORBIDDEN"], Role.ADMIN: [], Role.SYSTEM: ["FORBIDDEN"]},
    Who.SYSTEM: {None: ["UNAUTHENTICATED"], Role.USER: ["FORBIDDEN"], Role.ADMIN: ["FORBIDDEN"], Role.SYSTEM: []},
}
# The codes that an allowed caller gets when nothing is stored.
CODES_WITHOUT_DATA = {
    "confirmSighting": ["NOT_FOUND"],
    "deleteWatch": ["NOT_FOUND"],
    "deletePost": ["NOT_FOUND"],
    "addComment": ["NOT_FOUND"],
    "likePost": ["NOT_FOUND"],
    "follow": ["NOT_FOUND"],
    "updateTeam": ["NOT_FOUND"],
    "updateLeague": ["NOT_FOUND"],
    "deleteLeague": ["NOT_FOUND"],
    "updateFixture": ["NOT_FOUND"],
    "archiveFixture": ["NOT_FOUND"],
    "registerActiveMatch": ["NOT_FOUND"],
    "deactivateMatch": ["NOT_FOUND"],
    "registerLiveActivity": ["NOT_FOUND"],
    "updateLiveActivityToken": ["NOT_FOUND"],
    "endLiveActivity": ["NOT_FOUND"],
    "suspendLiveActivity": ["NOT_FOUND"],
    "updatePushToStartToken": ["NOT_FOUND"],
    "followMatch": ["NOT_FOUND"],
    "updateMatchFollow": ["NOT_FOUND"],
    "completePhoto": ["NOT_FOUND"],
    "updatePhoto": ["NOT_FOUND"],
    "tagFace": ["NOT_FOUND"],
    "updatePerson": ["NOT_FOUND"],
    "mergePersons": ["NOT_FOUND"],
    "updateLivestream": ["NOT_FOUND"],
    "endLivestream": ["NOT_FOUND"],
    "matchesByLeague": ["NOT_FOUND"],
}

IDS = {"ingestEarthquakes": "http://127.0.0.1:1/none"}


@pytest.mark.proof
@pytest.mark.parametrize("role", [None, *Role])
async def test_each_field_answers_allowed_callers_and_refuses_others(served: Served, role: Role | None) -> None:
    answers = {
        name: await served.ask(
            query.replace("%s", IDS.get(name, "none")),
            user=None if role is None else "ada",
            role=role or Role.USER,
            # The photo library knows its users by their email.
            email=ADA,
        )
        for name, (query, _, _) in ASK.items()
    }

    refused = {name: OUTCOMES[WHO[name]][role] for name in ASK}
    assert {name: answer.codes for name, answer in answers.items()} == {
        name: refused[name] or CODES_WITHOUT_DATA.get(name, []) for name in ASK
    }
    assert [name for name, answer in answers.items() if refused[name] and answer.calls] == []


@pytest.mark.parametrize(
    ("role", "codes"), [(Role.USER, ["FORBIDDEN"]), (Role.ADMIN, []), (Role.SYSTEM, [])], ids=lambda value: str(value)
)
async def test_another_users_data_is_for_admins_and_services(served: Served, role: Role, codes: list[str]) -> None:
    answer = await served.ask('{ watches(userId: "somebody") { watchId } }', user="ada", role=role)

    assert answer.codes == codes


async def test_me_is_the_caller_or_null(served: Served) -> None:
    me = "{ me { userId role email profile { reportTotal } } }"

    anonymous = await served.ask(me)
    admin = await served.ask(me, user="root", role=Role.ADMIN)

    assert anonymous.data == {"me": None}
    assert admin.data == {"me": {"userId": "root", "role": "ADMIN", "email": None, "profile": None}}


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
