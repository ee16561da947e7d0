"""The ID arguments of sightings and earthquakes: each accepts the local and the global id, and no other type's."""

from collections.abc import Iterator
from typing import Any

import pytest
from graphql import get_named_type
from strawberry.utils.str_converters import to_camel_case

import schema
from datastore.keyspace.sightings import BLIP
from resolvers.shared.global_ids import global_id
from schema import earthquakes, sightings
from tests.support.earthquake_samples import quake, store
from tests.support.served import Served
from tests.support.sightings import report_sighting

ARGUMENTS = {
    "Query.earthquake(id:)": "query ($id: ID!) { earthquake(id: $id) { eventId } }",
    "Query.userProfile(id:)": "query ($id: ID!) { userProfile(id: $id) { userId } }",
    "Query.watches(userId:)": "query ($id: ID!) { watches(userId: $id) { watchId } }",
    "Mutation.confirmSighting(sightingId:)": """mutation ($id: ID!) {
      confirmSighting(area: "Downtown", sightingId: $id) { sightingId } }""",
    "Mutation.deleteWatch(watchId:)": """mutation ($id: ID!) {
      deleteWatch(area: "Downtown", category: "Cats", watchId: $id) { watchId } }""",
    "Subscription.watchAlerts(userId:)": """subscription ($id: ID!) { watchAlerts(userId: $id) { sightingId } }""",
}
SUBSCRIPTION = "Subscription.watchAlerts(userId:)"
OPERATIONS = [name for name in ARGUMENTS if name != SUBSCRIPTION]
CREATE_WATCH = 'mutation { createWatch(input: {area: "Downtown", category: "Cats"}) { id watchId } }'


def id_arguments() -> Iterator[str]:
    """Return the coordinates of the ID arguments of both systems."""
    types: Any = schema.build()._schema.type_map
    for system in (earthquakes.SYSTEM, sightings.SYSTEM):
        parts = {"Query": system.queries, "Mutation": system.mutations, "Subscription": system.subscriptions}
        for root, declared in parts.items():
            definitions: list[Any] = [part.__strawberry_definition__ for part in declared]  # type: ignore[attr-defined]
            names = [to_camel_case(field.python_name) for each in definitions for field in each.fields]
            for name in names:
                arguments = types[root].fields[name].args.items()
                yield from (
                    f"{root}.{name}({key}:)" for key, each in arguments if get_named_type(each.type).name == "ID"
                )


async def stored_ids(served: Served, name: str) -> tuple[str, str]:
    """Return the local and the global id of a stored object for an argument of Ada's request."""
    if name == "Query.earthquake(id:)":
        await store(served, quake("us1"))
        return "us1", global_id("Earthquake", "us1")
    if name == "Mutation.confirmSighting(sightingId:)":
        sighting = await report_sighting(served, user="bob")
        return sighting["sightingId"], sighting["id"]
    if name == "Mutation.deleteWatch(watchId:)":
        watch = (await served.ask(CREATE_WATCH, user="ada")).data["createWatch"]
        return watch["watchId"], watch["id"]
    await report_sighting(served, user="ada")
    return "ada", global_id("UserProfile", "ada")


def test_each_id_argument_is_tested() -> None:
    assert set(id_arguments()) == ARGUMENTS.keys()


@pytest.mark.parametrize("name", OPERATIONS)
async def test_an_argument_accepts_the_global_id(served: Served, name: str) -> None:
    local, of_all_types = await stored_ids(served, name)

    by_global_id = await served.ask(ARGUMENTS[name], {"id": of_all_types}, user="ada")

    assert by_global_id.errors is None, by_global_id.errors
    assert None not in by_global_id.data.values()
    if name != "Mutation.deleteWatch(watchId:)":
        by_local_id = await served.ask(ARGUMENTS[name], {"id": local}, user="ada")
        assert by_local_id.data == by_global_id.data


@pytest.mark.parametrize("name", OPERATIONS)
async def test_an_argument_refuses_the_global_id_of_another_type(served: Served, name: str) -> None:
    answer = await served.ask(ARGUMENTS[name], {"id": global_id("Photo", "x", "y")}, user="ada")

    argument = name.partition("(")[2].removesuffix(":)")
    (error,) = answer.errors or []
    assert (error["extensions"]["code"], error["extensions"]["field"]) == ("BAD_USER_INPUT", argument)
    assert "global id of the type Photo" in error["message"]
    assert answer.calls == []


async def test_a_global_id_must_fit_the_other_arguments(served: Served) -> None:
    elsewhere = await report_sighting(served, area="Harbor", user="bob")
    watch = (await served.ask(CREATE_WATCH, user="eve")).data["createWatch"]

    of_another_area = await served.ask(
        ARGUMENTS["Mutation.confirmSighting(sightingId:)"], {"id": elsewhere["id"]}, user="ada"
    )
    of_another_user = await served.ask(ARGUMENTS["Mutation.deleteWatch(watchId:)"], {"id": watch["id"]}, user="ada")

    for answer in (of_another_area, of_another_user):
        assert answer.codes == ["BAD_USER_INPUT"]
        assert answer.calls == []


def alerts_of(id: str) -> str:
    return ARGUMENTS[SUBSCRIPTION].replace("($id: ID!) ", "").replace("$id", f'"{id}"')


async def test_alerts_refuse_the_global_id_of_another_type(served: Served) -> None:
    listener = await served.listen(alerts_of(global_id("Photo", "ada")), user="ada")

    (error,) = (await listener.message())["payload"]["errors"]
    assert error["extensions"]["code"] == "BAD_USER_INPUT"


async def test_alerts_are_of_the_user_of_a_global_id(served: Served) -> None:
    await served.ask(CREATE_WATCH, user="ada")
    listener = await served.listen(alerts_of(global_id("UserProfile", "ada")), user="ada")
    await served.settle(BLIP)

    sighting = await report_sighting(served, user="bob")

    assert await listener.event() == {"watchAlerts": {"sightingId": sighting["sightingId"]}}
