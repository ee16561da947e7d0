"""The contract of street sightings: each field with its access patterns, callers, calls, and an operation."""

from datastore.keyspace.sightings import BLIP
from datastore.model.access_patterns import Who
from tests.support.contract.pages import Again, Field, Followed, Nested, NodeType, Owner, Page
from tests.support.served import Served

SETUP = """mutation {
  reportSighting(input: {area: "Downtown", category: "Cats", description: "x"}) { sightingId }
  createWatch(input: {area: "Downtown", category: "Cats"}) { watchId }
}"""


async def prepare_sightings(served: Served) -> dict[str, str]:
    answer = await served.ask(SETUP, user="ada")
    assert answer.errors is None
    return {
        "sighting": answer.data["reportSighting"]["sightingId"],
        "watch": answer.data["createWatch"]["watchId"],
    }


PAGE = Page(
    name="sightings",
    prepare=prepare_sightings,
    fields=(
        Field(
            "sightings",
            ("BLIP-1", Who.ANY, {"Query"}),
            '{ sightings(area: "Downtown") { nodes { area } } }',
            ["Query blip"],
        ),
        Field(
            "userProfile",
            ("BLIP-2", Who.ANY, {"GetItem", "BatchGetItem"}),
            '{ userProfile(id: "ada") { userId } }',
            ["GetItem blip"],
        ),
        Field(
            "watches",
            ("BLIP-3", Who.USER, {"Query"}),
            '{ watches(userId: "ada") { watchId } }',
            ["Query blip"],
            owner=Owner.NAMED,
        ),
        Field(
            "trending",
            ("BLIP-4", Who.ANY, {"Query"}),
            "{ trending { sightingCount sightings { nodes { area } } } }",
            ["Query blip.TrendingIndex"] * 5,
        ),
        Field(
            "confirmSighting",
            ("BLIP-5", Who.USER, {"Query", "TransactWriteItems"}),
            'mutation { confirmSighting(area: "Downtown", sightingId: "<sighting>") { area } }',
            ["Query blip", "TransactWriteItems blip"],
            user="grace",
            missing="NOT_FOUND",
        ),
        # The tier is copied onto the sighting, so the profile is read before the transaction.
        Field(
            "reportSighting",
            ("BLIP-6", Who.USER, {"GetItem", "TransactWriteItems"}),
            'mutation { reportSighting(input: {area: "Harbor", category: "Cats", description: "x"}) { sightingId } }',
            ["GetItem blip", "TransactWriteItems blip"],
        ),
        Field(
            "createWatch",
            ("BLIP-7", Who.USER, {"PutItem"}),
            'mutation { createWatch(input: {area: "Harbor", category: "Cats"}) { area } }',
            ["PutItem blip"],
        ),
        Field(
            "deleteWatch",
            ("BLIP-7", Who.USER, {"DeleteItem"}),
            'mutation { deleteWatch(area: "Downtown", category: "Cats", watchId: "<watch>") { area } }',
            ["DeleteItem blip"],
            again=Again.NOTHING_THERE,
            is_ambiguous=True,
        ),
        Field(
            "seedDemo",
            ("BLIP-8", Who.ADMIN, {"TransactWriteItems"}),
            "mutation { seedDemo { area } }",
            ["TransactWriteItems blip"],
        ),
    ),
    subscriptions=(
        Followed(
            "sightingReported",
            ("BLIP-S1", Who.ANY, set()),
            'sightingReported(area: "Downtown") { area }',
        ),
        Followed(
            "watchAlerts",
            ("BLIP-S2", Who.USER, {"Query"}),
            'watchAlerts(userId: "ada") { area }',
            snapshot=(BLIP, "Query blip"),
        ),
    ),
    cursors={
        "sightings": ("BLIP-1", '{"area":"Downtown","order":"ascending"}', '{"area":"Downtown"}'),
    },
    nodes=(
        NodeType("Sighting", 'sightings(area: "Downtown") { nodes { id } }'),
        NodeType("UserProfile", 'userProfile(id: "ada") { id }'),
        NodeType("Watch", 'watches(userId: "ada") { id }', restricted="BLIP-N2"),
    ),
    nested=(
        Nested(
            "Me.watches",
            "me { value: watches { area } }",
            {"anonymous": None, "owner": [{"area": "Downtown"}], "stranger": [], "admin": [], "system": []},
        ),
    ),
)
