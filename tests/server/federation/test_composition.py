"""The composers of Apollo and of The Guild compose the gateway with a second subgraph."""

import pytest
from graphql import GraphQLSchema, build_schema

from tests.support.second_subgraph import SDL
from tests.support.supergraphs import compose


def fields_of_composed(schema: GraphQLSchema, name: str) -> set[str]:
    return {*schema.type_map[name].fields}  # type: ignore[attr-defined]


async def test_both_composers_accept_the_subgraphs() -> None:
    composed = await compose()

    assert {name: said["errors"] for name, said in composed.items()} == {"apollo": [], "guild": []}
    for said in composed.values():
        schema = build_schema(said["supergraph"], assume_valid_sdl=True)
        assert fields_of_composed(schema, "Match") >= {"leagueCode", "ticketPrice"}
        assert fields_of_composed(schema, "User") >= {"name", "rating"}
        assert fields_of_composed(schema, "Query") >= {"match", "node", "matchesWithTickets", "tickets"}
        assert not fields_of_composed(schema, "Query") & {"_service", "_entities"}


@pytest.mark.parametrize(
    ("second", "words"),
    [
        # Only the types of lists are shareable.
        (SDL.replace("ticketPrice: Int", "leagueCode: String! @shareable"), "leagueCode"),
        # The router could not find the key in the gateway.
        (SDL.replace("matchId", "otherId"), "otherId"),
    ],
)
async def test_both_composers_refuse_what_the_gateway_does_not_share(second: str, words: str) -> None:
    for said in (await compose(second)).values():
        assert said["supergraph"] is None
        assert any(words in message for message in said["errors"])
