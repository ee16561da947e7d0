"""Groups of options: each is declared once, and a command receives it as one parameter."""

import json
from typing import Annotated

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from datastore.database import StoreOptions
from runtime.cli.options import takes_store
from runtime.cli.pipelines import MetricsOptions, takes_metrics


@pytest.fixture
def commands() -> typer.Typer:
    commands = typer.Typer()

    @commands.command()
    @takes_metrics
    @takes_store
    def show(
        name: Annotated[str, typer.Argument()],
        *,
        loud: bool = False,
        store: StoreOptions,
        metrics: MetricsOptions,
        times: int = 1,
    ) -> None:
        typer.echo(json.dumps([name, loud, store.store, store.prefix, metrics.metrics_port, times]))

    return commands


def test_a_command_receives_each_group_as_one_parameter(commands: typer.Typer) -> None:
    given = ["heron", "--times", "2", "--prefix", "test-", "--metrics-port", "9100", "--loud"]
    done = CliRunner().invoke(commands, given)

    assert json.loads(done.stdout) == ["heron", True, "embedded", "test-", 9100, 2]


def test_the_options_of_a_group_are_listed_in_its_position(commands: typer.Typer) -> None:
    names = [parameter.name for parameter in get_command(commands).params]

    assert names[:8] == ["name", "loud", "store", "data_dir", "memory", "prefix", "region", "metrics_port"]
    assert names[8:10] == ["metrics_host", "times"]


def test_options_that_contradict_each_other_are_refused(commands: typer.Typer) -> None:
    done = CliRunner().invoke(commands, ["heron", "--memory", "--store", "aws"])

    assert (done.exit_code, "is for the embedded store only" in done.stderr) == (2, True)
