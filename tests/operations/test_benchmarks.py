"""The figures that benchmarks draw and count."""

import asyncio
from typing import Any
from xml.etree import ElementTree

import orjson
import pytest

from benchmarks.contenders import OURS, Result
from benchmarks.crowd import Crowd, Plan
from benchmarks.peers.bare_sockets import RawSocket, framed
from benchmarks.speed_chart import chart_svg
from benchmarks.workloads import WORKLOADS
from tests.support.until import until

SVG = "{http://www.w3.org/2000/svg}"


def test_a_chart_has_a_bar_and_a_figure_for_each_server_and_workload() -> None:
    servers = {OURS.name: 1.5, "one that is <slower> & larger": 30.0}
    results = [
        Result(server, workload.name, 16, {}, cpu=[cpu, cpu, 99.0])
        for workload in WORKLOADS
        for server, cpu in servers.items()
    ]

    chart = ElementTree.fromstring(chart_svg(results))

    widths = [float(bar.attrib["width"]) for bar in chart.iter(f"{SVG}rect")]
    texts = [text.text for text in chart.iter(f"{SVG}text")]
    assert len(widths) == 2 * len(WORKLOADS)
    assert {round(own / other, 2) for own, other in zip(widths[::2], widths[1::2], strict=True)} == {0.05}
    assert [texts.count(received) for received in ("1.50", "30.0", *servers)] == [len(WORKLOADS)] * 4
    assert texts[0] == "W1 post(id)"


@pytest.mark.parametrize("piece", [1, 7, 10_000])
async def test_a_crowd_counts_each_event_at_each_subscriber_however_frames_are_cut(piece: int) -> None:
    server = await asyncio.get_running_loop().create_server(RawSocket, "127.0.0.1", 0)
    plan = Plan(server.sockets[0].getsockname()[1], {}, [{"query": "subscription { topic }"}], 3, "version")
    crowd = Crowd()
    await crowd.handle("open", plan.encoded())
    await until(lambda: len(RawSocket.transports) == 3)
    await crowd.handle("begin")

    frames = b"".join(
        framed(orjson.dumps({"type": "next", "payload": {"data": {"topic": {"version": version, "text": text}}}}))
        for version, text in ((1, "short"), (2, "of more than 125 bytes " * 10))
    )
    for at in range(0, len(frames), piece):
        for transport in RawSocket.transports:
            transport.write(frames[at : at + piece])
        await asyncio.sleep(0)
    await until(lambda: sum(map(len, crowd.arrived.values())) == 6)

    received: Any = await crowd.handle("report")
    assert [(version, len(times)) for version, times in received["arrived"]] == [(1, 3), (2, 3)]
    assert (received["differing"], received["least"], received["most"]) == (0, 2, 2)
    await crowd.handle("close")
    server.close()
