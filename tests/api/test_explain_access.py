"""The callers that may have operations explained, and the values that an explanation hides."""

from typing import Any

import orjson
import pytest

from datastore.errors import Forbidden, Unauthenticated
from datastore.model.identity import Identity, Role
from server.admission.callers import Caller
from server.operations.explain import Explain, Explanations
from server.settings import Misconfigured, from_environment
from tests.support.contract import photos
from tests.support.explain import ask_explained, explanation
from tests.support.explain_steps import (
    SIGHTINGS,
    explaining,
    receive_message,
    settings,
    socket,
    store_options,
    watch_engine,
)
from tests.support.fault_proxy import Proxy
from tests.support.photo_items import ADA, EVE, photo_user, user_id
from tests.support.photo_items import put_library_items as put_photos
from tests.support.served import Served

__all__ = ["settings", "socket", "store_options"]


@pytest.mark.parametrize(
    ("value", "explained"), [("1", True), ("TRUE", True), ("True ", True), ("0", False), ("false", False), ("", False)]
)
async def test_the_header_turns_explanations_on_or_off(served: Served, value: str, explained: bool) -> None:
    headers = served.headers("ada", Role.ADMIN) | {"X-Explain": value}
    async with served.http.post(f"{served.url}/graphql", json={"query": SIGHTINGS}, headers=headers) as response:
        assert ("extensions" in await response.json()) is explained


@pytest.mark.parametrize("value", ["yes", "2", "1, 1", "on"])
async def test_a_header_with_another_value_is_refused(served: Served, value: str) -> None:
    headers = served.headers("ada", Role.ADMIN) | {"X-Explain": value}
    async with served.http.post(f"{served.url}/graphql", json={"query": SIGHTINGS}, headers=headers) as response:
        assert response.status == 400
        (error,) = (await response.json())["errors"]
    assert error["extensions"]["code"] == "BAD_USER_INPUT"
    assert error["message"] == "The header X-Explain must be 1 or true, or 0 or false."


# --- Callers ---------------------------------------------------------------------------------------------------------


CALLERS = {
    "anonymous": None,
    "user": Identity("ada", Role.USER),
    "admin": Identity("root", Role.ADMIN),
    "system": Identity("poller", Role.SYSTEM),
}


@pytest.mark.parametrize(
    ("setting", "allowed"),
    [
        (Explain.OFF, set()),
        (Explain.ADMIN, {"admin", "system"}),
        (Explain.USER, {"user", "admin", "system"}),
        (Explain.ANYONE, {"anonymous", "user", "admin", "system"}),
    ],
)
def test_the_callers_who_may_have_operations_explained(setting: Explain, allowed: set[str]) -> None:
    refused: dict[str, type[Exception]] = {}
    for name, identity in CALLERS.items():
        try:
            Explanations(setting).check(Caller(identity))
        except (Forbidden, Unauthenticated) as refusal:
            refused[name] = type(refusal)

    assert CALLERS.keys() - refused.keys() == allowed
    assert refused.pop("anonymous", Unauthenticated) is (Forbidden if setting is Explain.OFF else Unauthenticated)
    assert set(refused.values()) <= {Forbidden}


def test_the_setting_is_one_of_four() -> None:
    assert from_environment({"GATEWAY_EXPLAIN": "anyone"})["explain"] == "anyone"
    with pytest.raises(Misconfigured, match="GATEWAY_EXPLAIN must be one of off, admin, user, anyone, not 'all'"):
        from_environment({"GATEWAY_EXPLAIN": "all"})


async def test_an_explanation_confirms_no_email(served: Served) -> None:
    await put_photos(served, photo_user(EVE))
    query = f"""{{
      known: photoUser(id: "{user_id(served, EVE)}") {{ displayName }}
      right: photosByUser(email: "{EVE}") {{ nodes {{ imageId }} }}
      wrong: photosByUser(email: "{ADA}") {{ nodes {{ imageId }} }}
    }}"""

    hidden = explanation(await ask_explained(served, query, role=Role.USER, email="mallory@example.com"))
    shown = explanation(await ask_explained(served, query, role=Role.ADMIN))

    [read] = [call["keys"] for call in hidden["calls"] if "keys" in call]
    assert read == [{"PK": "USER#<email>", "SK": "USER#<email>"}]
    values = [call["values"] for call in hidden["calls"] if "values" in call]
    assert len(values) == 2
    assert values[0] == values[1]
    assert EVE in str(shown)


@pytest.mark.parametrize("settings", [None], indirect=True, ids=["by default"])
async def test_without_permission_nothing_is_executed(served: Served, proxy: Proxy, socket: Any) -> None:
    with watch_engine(proxy) as wire:
        await socket.send_json({"id": "1", "type": "subscribe", "payload": explaining(SIGHTINGS)})
        message = await receive_message(socket)
        refused = await ask_explained(served, SIGHTINGS, role=Role.USER)
        anonymous = await ask_explained(
            served, SIGHTINGS, user=None, headers={"Accept": "application/graphql-response+json"}
        )

    assert wire.requests == []
    assert [error["extensions"]["code"] for error in refused["errors"] + anonymous["errors"]] == [
        "FORBIDDEN",
        "UNAUTHENTICATED",
    ]
    assert "extensions" not in refused
    assert (message["type"], message["payload"][0]["extensions"]["code"]) == ("error", "FORBIDDEN")

    answer = await served.ask(SIGHTINGS, user="ada")
    assert answer.errors is None
    assert [(call.patterns, call.details) for call in answer.calls] == [(("BLIP-1",), None)]


async def test_emails_are_shown_to_admins_only(served: Served) -> None:
    await photos.prepare_photos(served)
    query = f'{{ photosByUser(email: "{ADA}") {{ nodes {{ id }} }} photoUser(email: "{ADA}") {{ id }} }}'

    admins = orjson.dumps(explanation(await ask_explained(served, query, email=ADA))).decode()
    users = orjson.dumps(explanation(await ask_explained(served, query, role=Role.USER, email=ADA))).decode()

    assert ADA in admins
    assert "@" not in users
    assert EVE not in users
