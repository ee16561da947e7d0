"""The HTTP protocol beside h11, on 100,000 generated requests: we reject what h11 rejects, and read the rest alike.

`fuzzing.differential` lists the intended differences.
"""

from collections import Counter

import pytest

from tests.support.fuzzing.differential import (
    LAXER,
    OTHERWISE,
    STRICTER,
    URL,
    Ours,
    compare_readings,
    random_streams,
    read_by_h11,
)

REQUESTS = 100_000
PARTS = 4


@pytest.mark.timeout(180)
@pytest.mark.parametrize("seed", range(PARTS))
def test_requests_are_read_as_h11_reads_them(seed: int) -> None:
    ours = Ours()
    found: Counter[str | None] = Counter()
    judged = 0
    for stream in random_streams(seed):
        theirs = read_by_h11(stream)
        judged += theirs.judged
        found[compare_readings(stream, ours.read(stream), theirs)] += 1
        if judged >= REQUESTS // PARTS:
            break

    assert found[None] > sum(found.values()) / 3, "Enough of them are read alike."
    # An exception that never occurs must be removed.
    assert {name for name in found if name} == {URL, *STRICTER, *LAXER, *OTHERWISE}


def test_each_exception_has_a_reason() -> None:
    reasons = [meant.reason for table in (STRICTER, OTHERWISE) for meant in table.values()]
    reasons += [laxer.reason for laxer in LAXER.values()]
    assert all(len(reason) > 40 and reason.endswith(".") for reason in reasons)


@pytest.mark.parametrize(
    ("stream", "name"),
    [
        (b"PUT / HTTP/1.1\r\nHost: x\r\n\r\n", "method"),
        (b"GET / HTTP/1.2\r\nHost: x\r\n\r\n", "version"),
        (b"GET x HTTP/1.1\r\nHost: x\r\n\r\n", "target"),
        (b"GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", "host"),
        (b"GET / HTTP/1.1\r\nHost:\r\n\r\n", "host"),
        (b"GET /echo#a HTTP/1.1\r\nHost: x\r\n\r\n", "target"),
        (b"GET http://y/ HTTP/1.1\r\nHost: x\r\n\r\n", "authority"),
        (b"GET http://x/ HTTP/1.1\r\nHost: x\r\n\r\n", URL),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1, 1\r\n\r\na", "framing"),
        (b"GET / HTTP/1.1\nHost: x\n\n", "line ends"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n", "folded lines"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: \x01\r\n\r\n", "characters"),
        (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1;\x7f\r\na\r\n0\r\n\r\n", "characters"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"a: b\r\n" * 101 + b"\r\n", "limits"),
        (b"\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n", "empty lines"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nProxy-Connection: close\r\n\r\n", "Proxy-Connection"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA:  b \t \r\n\r\n", None),
        (b"GET /?a=b HTTP/1.0\r\n\r\n", None),
    ],
)
def test_intended_differences(stream: bytes, name: str | None) -> None:
    assert compare_readings(stream, Ours().read(stream), read_by_h11(stream)) == name
