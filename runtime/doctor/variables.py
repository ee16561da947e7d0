"""Checks of the settings: each variable for itself, and the files of secrets."""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from typer.core import TyperGroup

from datastore.secret_files import SECRETS, SUFFIX
from runtime.cli.variables import known_variables
from runtime.doctor.findings import Finding, Level
from server.settings import Misconfigured, from_environment

OTHERS = stat.S_IRGRP | stat.S_IROTH


def check_variables(commands: TyperGroup, environment: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """Check the value of each variable that is set. Each command warns of unknown variables before it starts."""
    given = sorted(known_variables(commands) & environment.keys())
    problems = list(invalid_values(given, environment))
    for problem in problems:
        yield Finding(Level.ERROR, "Settings", problem)
    if not problems:
        text = f"{', '.join(given)} {'is' if len(given) == 1 else 'are'} valid" if given else "No variable is set"
        yield Finding(Level.OK, "Settings", f"{text}; the others have their defaults.")


def invalid_values(names: Iterable[str], environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the message for each of the variables whose value is invalid by itself."""
    for name in names:
        try:
            from_environment({name: environment[name]})
        except Misconfigured as problem:
            yield str(problem)


def check_secret_files(environment: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """Check that other users cannot read the files of secrets."""
    for name in SECRETS:
        path = Path(environment.get(name + SUFFIX) or "")
        if path.is_file() and path.stat().st_mode & OTHERS:
            text = f"{name}{SUFFIX}: other users may read {path}: run `chmod 600 {path}`."
            yield Finding(Level.WARNING, "Secrets", text)
