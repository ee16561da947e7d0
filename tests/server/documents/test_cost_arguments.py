"""The cost of a field takes the arguments of its filters and conditions into account."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

import schema as api
from datastore.keyspace import earthquakes as keys
from datastore.keyspace.photos import persons
from datastore.model.access_patterns import AccessPattern, Extent
from resolvers.earthquakes.costs import EarthquakeCosts
from resolvers.earthquakes.earthquakes import EARTHQUAKE_COSTS
from resolvers.earthquakes.query_window import days_between, events_scanned_for_one
from schema.cost_arguments import ALWAYS_KNOWN, ANY_TIME, ReadArguments
from schema.fields import pattern_field

EARTHQUAKES = Extent(partitions=days_between, scanned=events_scanned_for_one)
MODELS = {EARTHQUAKE_COSTS: EarthquakeCosts(lambda seconds: pytest.fail("The store is not needed."))}


async def earthquakes(
    info: Any, from_: Any = None, min_magnitude: float | None = None, max_magnitude: float | None = None
) -> list[str]:
    return []


async def merge_resolver(info: Any, from_: str, into: str) -> str:
    return ""


def declare_field(pattern: AccessPattern, resolver: Any, extent: Extent) -> None:
    pattern_field(pattern, resolver=resolver, graphql_type=list[str], extent=extent, description="Return names.")


@pytest.mark.parametrize("clause", ["mag <= :maxMagnitude", "mag <= :greatest"])
def test_a_field_whose_cost_ignores_a_filter_argument_is_refused_and_the_argument_named(clause: str) -> None:
    pattern = replace(keys.EVENTS_BY_DAY, filter=(*keys.EVENTS_BY_DAY.filter, clause))

    with pytest.raises(ValueError, match=r"`earthquakes` \(QUAKE-2\) ignores `maxMagnitude`.*`Extent` in the package"):
        declare_field(pattern, earthquakes, EARTHQUAKES)


def test_the_cost_model_of_a_field_is_named_too() -> None:
    pattern = replace(keys.EVENTS_BY_DAY, filter=("mag <= :maxMagnitude",))

    with pytest.raises(ValueError, match="`Extent` in the package `schema` and its cost model `earthquakes` in"):
        declare_field(pattern, earthquakes, replace(EARTHQUAKES, model=EARTHQUAKE_COSTS))


def test_an_argument_of_a_condition_must_be_known_too() -> None:
    with pytest.raises(ValueError, match=r"`merge_resolver` .* ignores `into`"):
        declare_field(persons.MERGE_PERSONS, merge_resolver, Extent(written=25))


def test_an_argument_is_known_if_a_function_reads_it_or_if_the_extent_ignores_it() -> None:
    def scanned(arguments: Mapping[str, Any]) -> float:
        return events_scanned_for_one(arguments) / (1 if arguments["maxMagnitude"] is None else 2)

    declare_field(keys.EVENTS_BY_DAY, earthquakes, replace(EARTHQUAKES, scanned=scanned))
    declare_field(keys.EVENTS_BY_DAY, earthquakes, replace(EARTHQUAKES, ignores={"maxMagnitude": "Few are stronger."}))


def test_cost_models_know_all_arguments_of_their_fields() -> None:
    fields = [
        (name, field, field.extensions["strawberry-definition"].metadata.get("extent", Extent()))
        for kind in api.build()._schema.type_map.values()
        for name, field in getattr(kind, "fields", {}).items()
        if "strawberry-definition" in getattr(field, "extensions", {})
        and hasattr(field.extensions["strawberry-definition"], "metadata")
    ]

    for name, field, extent in fields:
        if extent.model:
            read = ReadArguments()
            MODELS[extent.model].units(read, ANY_TIME)
            missing = field.args.keys() - read.names - ALWAYS_KNOWN - extent.ignores.keys()
            assert not missing, f"Let the cost model of `{name}` in resolvers/ take {missing} into account."
