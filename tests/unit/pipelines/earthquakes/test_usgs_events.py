"""The conversion of USGS features: accepted and rejected ones, and the reasons."""

import asyncio
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datastore.earthquakes.events import Earthquake
from pipelines.earthquakes.usgs_events import Rejection, RejectionReason
from pipelines.earthquakes.usgs_feed import FeedCode
from tests.support.usgs_samples import (
    OTHER,
    Json,
    decoded_quake,
    feature,
    feed_bytes,
    read_body,
)


async def test_a_valid_feature_becomes_an_earthquake() -> None:
    assert await decoded_quake() == Earthquake(
        "us1", 1_700_000_000_000, 4.5, "1 km N of Here", 33.25, -116.5, 9.75, "USGS", 5, status="reviewed"
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"id": OTHER}, RejectionReason.MISSING_ID),
        ({"id": None}, RejectionReason.MISSING_ID),
        ({"id": ""}, RejectionReason.MISSING_ID),
        ({"id": "x" * 65}, RejectionReason.ID_TOO_LONG),
        ({"id": 7}, RejectionReason.BAD_VALUE),
        ({"mag": None}, RejectionReason.MISSING_MAGNITUDE),
        ({"mag": OTHER}, RejectionReason.MISSING_MAGNITUDE),
        ({"mag": "4.5"}, RejectionReason.BAD_VALUE),
        ({"mag": True}, RejectionReason.BAD_VALUE),
        ({"mag": [4.5]}, RejectionReason.BAD_VALUE),
        ({"mag": 10**400}, RejectionReason.BAD_VALUE),
        ({"coordinates": OTHER}, RejectionReason.MISSING_COORDINATES),
        ({"coordinates": None}, RejectionReason.MISSING_COORDINATES),
        ({"coordinates": []}, RejectionReason.MISSING_COORDINATES),
        ({"coordinates": [1.0]}, RejectionReason.MISSING_COORDINATES),
        ({"coordinates": [None, 1.0, 1.0]}, RejectionReason.MISSING_COORDINATES),
        ({"coordinates": {"lat": 1}}, RejectionReason.BAD_VALUE),
        ({"coordinates": [[1.0, 2.0], [3.0, 4.0]]}, RejectionReason.BAD_VALUE),
        ({"coordinates": [1.0, False, 1.0]}, RejectionReason.BAD_VALUE),
        ({"coordinates": [1.0, 1.0, "deep"]}, RejectionReason.BAD_VALUE),
        ({"coordinates": [1.0, 1.0, 1e200]}, RejectionReason.BAD_VALUE),
        ({"coordinates": [1.0, 90.0001, 1.0]}, RejectionReason.BAD_LATITUDE),
        ({"coordinates": [1.0, -90.0001, 1.0]}, RejectionReason.BAD_LATITUDE),
        ({"coordinates": [180.0001, 1.0, 1.0]}, RejectionReason.BAD_LONGITUDE),
        ({"coordinates": [-181, 1.0, 1.0]}, RejectionReason.BAD_LONGITUDE),
        ({"time": None}, RejectionReason.MISSING_TIME),
        ({"time": OTHER}, RejectionReason.MISSING_TIME),
        ({"time": 1.5}, RejectionReason.BAD_VALUE),
        ({"time": True}, RejectionReason.BAD_VALUE),
        ({"time": "2026-11-21"}, RejectionReason.BAD_VALUE),
        ({"time": 10**17}, RejectionReason.BAD_VALUE),
        ({"place": 7}, RejectionReason.BAD_VALUE),
        ({"status": "Deleted", "mag": None, "id": "us9"}, RejectionReason.DELETED),
        ({"type": "feature"}, RejectionReason.NOT_A_FEATURE),
        ({"type": OTHER}, RejectionReason.NOT_A_FEATURE),
    ],
)
async def test_an_invalid_feature_is_rejected_with_its_reason_and_the_next_is_read(
    changes: dict[str, Json], reason: RejectionReason
) -> None:
    refused, good = await read_body(feed_bytes(feature(**changes), feature(id="us2")))
    named = changes.get("id", "us1")
    assert refused == Rejection(reason, named[:64] if isinstance(named, str) else None)
    assert isinstance(good, Earthquake)


@pytest.mark.parametrize("value", [None, 3, "Feature", [], {}, [feature()], {"features": [feature()]}])
async def test_an_element_that_is_not_a_feature_is_rejected(value: Json) -> None:
    assert await read_body(feed_bytes(value)) == [Rejection(RejectionReason.NOT_A_FEATURE, None)]


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"properties": None}, RejectionReason.MISSING_MAGNITUDE),
        ({"properties": [1]}, RejectionReason.BAD_VALUE),
        ({"geometry": None}, RejectionReason.MISSING_COORDINATES),
        ({"geometry": "POINT(1 2)"}, RejectionReason.BAD_VALUE),
    ],
)
async def test_a_feature_without_its_parts_is_rejected(parts: dict[str, Json], reason: RejectionReason) -> None:
    assert await read_body(feed_bytes(feature() | parts)) == [Rejection(reason, "us1")]


@pytest.mark.parametrize("literal", [b"1e999", b"-1e999", b"1" + b"0" * 4000])
async def test_a_number_beyond_all_floats_is_a_bad_value(literal: bytes) -> None:
    body = feed_bytes(feature(mag="HERE"), feature()).replace(b'"HERE"', literal)
    assert [getattr(item, "reason", None) for item in await read_body(body)] == [RejectionReason.BAD_VALUE, None]


@pytest.mark.parametrize(("sent", "kept"), [(-2.1, -2.0), (-2, -2.0), (10.01, 10.0), (-0.3, -0.3), (1e300, 10.0)])
async def test_magnitudes_are_clamped(sent: float, kept: float) -> None:
    assert (await decoded_quake(mag=sent)).magnitude == kept


@pytest.mark.parametrize(("sent", "kept"), [([], None), ([None], None), ([-1.98], 0.0), ([-0.0], 0.0), ([663], 663.0)])
async def test_depths_are_clamped_and_unknown_ones_stay_unknown(sent: list[Json], kept: float | None) -> None:
    depth = (await decoded_quake(coordinates=[1, 2, *sent])).depth_km
    assert depth == kept
    assert depth is None or math.copysign(1, depth) == 1


@pytest.mark.parametrize("sent", [None, OTHER, "", "  "])
async def test_a_missing_place_is_unknown(sent: Json) -> None:
    assert (await decoded_quake(place=sent)).place == "Unknown location"


async def test_a_long_place_is_cut_at_512_characters_not_bytes() -> None:
    assert (await decoded_quake(place="ı" * 513)).place == "ı" * 512


async def test_half_a_surrogate_pair_is_replaced() -> None:
    item = await decoded_quake(place="a\ud800b", id="x\ud800")
    assert (item.place, item.event_id) == ("a?b", "x?")


async def test_float_noise_stays_as_it_is_and_tiny_numbers_are_zero() -> None:
    assert (await decoded_quake(mag=1.08000004)).magnitude == 1.08000004
    body = feed_bytes(feature(mag="HERE")).replace(b'"HERE"', b"4.4000000000000004")
    (item,) = await read_body(body)
    assert isinstance(item, Earthquake)
    assert item.magnitude == float("4.4000000000000004")
    assert (await decoded_quake(coordinates=[1e-200, 1, 1])).longitude == 0.0


async def test_a_time_before_1970_and_ids_of_64_characters_are_legal() -> None:
    item = await decoded_quake(time=-2_208_988_800_000, id="é" * 64)
    assert (item.occurred_at_ms, item.event_id) == (-2_208_988_800_000, "é" * 64)


async def test_the_reasons_are_stable() -> None:
    assert all(reason.value == reason.name for reason in RejectionReason)
    assert all(code.value == code.name for code in FeedCode)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=8,
)
MEMBERS = ("id", "type", "mag", "place", "time", "status", "coordinates")


@settings(max_examples=80, deadline=None)
@given(st.dictionaries(st.sampled_from(MEMBERS), JSON_VALUES), JSON_VALUES, st.integers(1, 99))
def test_any_feature_yields_one_item_within_bounds(changes: dict[str, Json], element: Json, size: int) -> None:
    items = asyncio.run(read_body(feed_bytes(feature(**changes), element, feature(id="last")), size))
    assert len(items) == 3
    assert isinstance(items[2], Earthquake)
    for item in items:
        if isinstance(item, Earthquake):
            assert 1 <= len(item.event_id) <= 64
            assert -2 <= item.magnitude <= 10
            assert 1 <= len(item.place) <= 512
            assert item.depth_km is None or 0 <= item.depth_km < 1e126
