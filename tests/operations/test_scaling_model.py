"""The model of how the gateway scales: its arithmetic, where its constants come from, and the page that shows a run."""

import inspect
import re
from pathlib import Path

import pytest

from benchmarks import scaling_constants, scaling_model
from benchmarks.scaling_model import Load, dollars, limits

DOCS = Path(__file__).resolve().parents[2] / "docs"
SOURCE = inspect.getsource(scaling_constants)
# The comments, by constant.
CONSTANTS = {name: comment for comment, name in re.findall(r"((?:#: .*\n)+)([A-Z_]+) = ", SOURCE)}
# 200 matches: 100 ticks a second, of which one in 15 finds a ball.
VIEWERS = Load("viewers", viewers=10_000, matches=200)
QUERIES = Load("queries", queries=10_000, workload="W1")


def test_the_dynamodb_load_of_live_matches() -> None:
    changed, unchanged = 200 / 30, 100 - 200 / 30
    assert (VIEWERS.changed, VIEWERS.unchanged) == pytest.approx((changed, unchanged))
    assert scaling_model.write_units(VIEWERS) == pytest.approx(19.5 * changed + 3.0 * unchanged)
    assert scaling_model.write_units(VIEWERS) == pytest.approx(410)
    # 4,500 bytes are two times 4 KB, each half a unit, for each of 10,000 viewers once in half an hour.
    assert scaling_model.read_units(VIEWERS) == pytest.approx(2.4 * changed + 1.9 * unchanged + 10_000 / 1800)
    assert scaling_model.stream_reads(VIEWERS) == 5 * 4 * 4
    assert dollars(VIEWERS) == pytest.approx(
        {
            "writes": 410 * 2_628_000 * 0.625e-6,
            "reads": (2.4 * changed + 1.9 * unchanged + 10_000 / 1800) * 2_628_000 * 0.125e-6,
            "streams": 80 * 2_628_000 * 0.02 / 100_000,
        }
    )


def test_the_load_of_viewers_on_gateways_and_the_bus() -> None:
    changes = 200 / 30 + 0.2 * (100 - 200 / 30)
    own = 5 * 0.0027 + changes * 0.1104e-3 + 200 / 30 * 1.07e-3
    shared = 10_000 / 30 * 5.84e-6 + 10_000 * 3.2e-6
    # Two for the sockets, 5,000 each, and a spare one.
    assert scaling_model.gateways(VIEWERS) == 3
    assert scaling_model.gateway_cpu(VIEWERS) == pytest.approx(3 * own + shared)
    assert scaling_model.bus_bytes(VIEWERS) == pytest.approx(3 * changes * 9000)
    assert scaling_model.bus_cpu(VIEWERS) == pytest.approx(3 * (5 * 0.0012 + changes * 0.0372e-3))
    assert scaling_model.log_seconds(VIEWERS) == pytest.approx(16_000_000 / (changes * 9000))
    assert scaling_model.burst_seconds(VIEWERS) == pytest.approx(10_000 / 3 * 5.84e-6)
    assert scaling_model.poller_cpu(VIEWERS) == pytest.approx(
        200 / 30 * 0.00476 + (100 - 200 / 30) * 0.00197 + 0.02051 / 5
    )


def test_one_process_relays_a_table() -> None:
    """The number of gateways does not matter."""
    name = "changes of a table a second, relayed by one process"
    for matches in (200, 20_000):
        load = Load("viewers", viewers=10_000, matches=matches)
        (share,) = [limit.share for limit in limits(load) if limit.name == name]
        assert share == pytest.approx(load.changes / 2000)


def test_the_load_of_queries() -> None:
    # 2.14 CPUs at half a CPU per gateway, and one spare gateway.
    assert scaling_model.gateways(QUERIES) == 6
    assert scaling_model.gateway_cpu(QUERIES) == pytest.approx(2.14)
    assert scaling_model.read_units(QUERIES) == 5000
    assert (scaling_model.write_units(QUERIES), scaling_model.stream_reads(QUERIES)) == (0, 0)
    assert sum(dollars(QUERIES).values()) == pytest.approx(5000 * 2_628_000 * 0.125e-6)


def test_nothing_takes_next_to_nothing() -> None:
    nothing = Load("nothing")
    assert scaling_model.gateways(nothing) == 2
    assert {limit.share for limit in limits(nothing)} == {0.0}
    assert sum(dollars(nothing).values()) == 0


def test_the_first_bottleneck_is_listed_first() -> None:
    for load in scaling_model.LOADS:
        shares = [limit.share for limit in limits(load)]
        assert shares == sorted(shares, reverse=True)
    shares_of = {limit.name: limit.share for limit in limits(Load("", viewers=1_000_000, matches=200))}
    assert shares_of["readers of a shard, without a bus"] == 201 / 2
    assert shares_of["CPU of the bus's Redis"] > 1


def test_listings_of_processes_without_a_bus_stay_below_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    # Three gateways list five tables: 28 shards in one call each 300 s, and the children of four shards each 4 hours.
    assert scaling_model.listing_calls(VIEWERS) == pytest.approx(3 * 5 * (1 / 300 + 4 / 14_400))
    assert scaling_model.listing_calls(QUERIES) == 0
    monkeypatch.setattr(scaling_constants, "SHARDS_OF_A_TABLE", 100)
    monkeypatch.setattr(scaling_model, "gateways", lambda _: 12)
    # 700 shards in seven calls.
    assert scaling_model.listing_calls(VIEWERS) == pytest.approx(12 * 5 * (7 / 300 + 100 / 14_400))
    assert scaling_model.listing_calls(VIEWERS) < scaling_constants.LISTINGS_OF_AN_ACCOUNT


def test_the_load_of_a_process_is_the_sum_of_its_parts() -> None:
    assert scaling_model.process_cpu(1000, 10) == pytest.approx(0.0153 + 10 * 1.07e-3 + 1000 * (3.2e-6 + 10 * 5.84e-6))


@pytest.mark.parametrize("name", re.findall(r"^([A-Z_]+) = ", SOURCE.partition("# --- ")[2], re.MULTILINE))
def test_each_constant_names_its_source(name: str) -> None:
    """An existing page or file, or an address; assumptions are under that heading."""
    comment = CONSTANTS[name]
    pages = "".join(page.read_text() for page in DOCS.rglob("*.md"))
    assert [section for section in re.findall(r'"([^"]+)"', comment) if section not in pages] == []
    assumed = SOURCE.index(f"\n{name} = ") > SOURCE.index("# --- Assumed")
    assert assumed or re.search(r'"|https://|docs/|Docs/|\.py|declaration|declared|same page', comment)


def test_the_page_shows_the_results_of_the_model() -> None:
    assert "\n".join(scaling_model.text()) in (DOCS / "scaling.md").read_text()
