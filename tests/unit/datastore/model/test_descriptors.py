"""The limit of connections fits the file descriptors of the process."""

import subprocess
import sys

import pytest

from server.admission.connection_limits import within_descriptors
from server.admission.settings import Capacity
from tests.support.store_engines import ROOT

LIMITED = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 300))
from server.admission.connection_limits import raise_descriptor_limit
print(raise_descriptor_limit(), *resource.getrlimit(resource.RLIMIT_NOFILE), raise_descriptor_limit())
"""


@pytest.mark.parametrize(
    ("configured", "descriptors", "connections", "is_reported"),
    [
        (10_000, 10_200, 10_000, False),
        (10_000, 1_024, 824, True),
        (10_000, 256, 128, True),
        (100, 256, 100, False),
        (0, 1_024, 824, False),
        (0, None, 0, False),
        (10_000, None, 10_000, False),
    ],
)
def test_the_limit_of_connections_fits(
    configured: int, descriptors: int | None, connections: int, is_reported: bool, caplog: pytest.LogCaptureFixture
) -> None:
    capacity = Capacity(connections=configured, websockets=7)
    assert within_descriptors(capacity, descriptors) == Capacity(connections=connections, websockets=7)
    assert [record.levelname for record in caplog.records] == ["WARNING"] * is_reported
    assert (
        not is_reported or f"At most {connections:,} connections are accepted instead of {configured:,}" in caplog.text
    )


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not limit file descriptors")
def test_the_limit_of_descriptors_is_raised_to_its_maximum() -> None:
    done = subprocess.run([sys.executable, "-c", LIMITED], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["300", "300", "300", "300"]
