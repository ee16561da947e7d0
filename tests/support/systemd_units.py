"""The units of `deploy/systemd` with the commands and environments that systemd would give to their processes."""

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.support.store_engines import ROOT

FOLDER = ROOT / "deploy" / "systemd"
INSTALLED = "/opt/gateway"
UNITS = sorted(FOLDER.glob("*.service"))
PIPELINES = sorted(path.name for path in (FOLDER / "pipelines").iterdir())


def lines_of(unit: Path) -> Iterator[tuple[str, str]]:
    """Yield the assignments of a unit file, in their order."""
    for line in unit.read_text().splitlines():
        name, separator, value = line.partition("=")
        if separator and not line.startswith("#"):
            yield name, value


class SystemdUnit:
    """A unit by its name, such as `gateway@8000`, on a machine whose folder /etc/gateway has these files."""

    def __init__(self, name: str, etc: Mapping[str, str]) -> None:
        template, at, instance = name.partition("@")
        self.name = name
        self._etc = etc
        self._lines = [
            (key, value.replace("%i", instance)) for key, value in lines_of(FOLDER / f"{template}{at}.service")
        ]

    @property
    def command(self) -> list[str]:
        """The arguments of `gateway.py`."""
        [start] = [value for key, value in self._lines if key == "ExecStart"]
        python, program, *arguments = shlex.split(start)
        assert (python, program) == (f"{INSTALLED}/.venv/bin/python", "gateway.py")
        return arguments

    def environment(self) -> dict[str, str]:
        """Return the variables: of `Environment`, then of the files, whose later assignments have priority."""
        pairs = [pair.split("=", 1) for key, value in self._lines if key == "Environment" for pair in value.split()]
        for key, value in self._lines:
            if key == "EnvironmentFile":
                pairs += [line.split("=", 1) for line in self._read(value) if line and not line.startswith("#")]
        return {name: value for name, value in pairs}

    def _read(self, path: str) -> list[str]:
        optional, path = path.startswith("-"), path.removeprefix("-")
        if path.startswith(INSTALLED):
            return Path(path.replace(INSTALLED, str(ROOT), 1)).read_text().splitlines()
        name = path.removeprefix("/etc/gateway/")
        return self._etc.get(name, "").splitlines() if optional else self._etc[name].splitlines()

    @property
    def metrics_port(self) -> int:
        """The port at which the process answers Prometheus: of the option, else of the variable."""
        arguments = self.command
        if "--metrics-port" in arguments:
            return int(arguments[arguments.index("--metrics-port") + 1])
        return int(self.environment()["GATEWAY_METRICS_PORT"])
