"""The commands of docs/getting-started.md work as written, against a gateway with demo data."""

import os
import re
import subprocess
from collections.abc import Iterator

import pytest

from tests.support.command_line import GatewayProcess, serve_process
from tests.support.store_engines import ROOT
from tests.support.until import until_blocking

SETUP, *STEPS = re.findall(
    r"```sh\n(.*?)```", (ROOT / "docs" / "getting-started.md").read_text().partition("## With curl")[2], re.DOTALL
)
# What the response to each step contains.
EXPECTED = (
    '"hasNextPage":true',
    '"postCount":',
    '"code":"BAD_USER_INPUT"',
    '"isSnapshot":true',
    '"operation":"Query"',
)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with serve_process(tmp_path_factory.mktemp("started") / "data", "--memory") as gateway:
        until_blocking(lambda: gateway.data("{ liveMatches { id } }")["liveMatches"])
        yield gateway


def test_each_step_has_an_expected_response() -> None:
    assert len(STEPS) == len(EXPECTED)


@pytest.mark.parametrize("step", range(len(EXPECTED)))
def test_a_step_of_the_page_gets_its_response(step: int, demo: GatewayProcess) -> None:
    setup = re.sub("TOKEN=.*", f"TOKEN={demo.token()}", re.sub("URL=.*", f"URL={demo.url}/graphql", SETUP, count=1))

    ran = subprocess.run(
        ["bash", "-euc", setup + STEPS[step]], capture_output=True, text=True, env={"PATH": os.environ["PATH"]}
    )

    assert (ran.returncode, ran.stderr) == (0, "")
    assert EXPECTED[step] in ran.stdout
