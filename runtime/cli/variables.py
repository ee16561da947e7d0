"""A warning of environment variables that look like settings of the gateway but are none."""

import os
from collections.abc import Collection, Iterator, Mapping

from typer.core import TyperCommand, TyperGroup

from datastore.engine.access_key import VARIABLE as ENGINE_KEY
from datastore.secret_files import SECRETS, SUFFIX
from runtime.console import warn
from server.settings import VARIABLES
from server.version import REVISION_VARIABLE

PREFIX = "GATEWAY_"
MOST_WARNINGS = 10
SHOWN_CHARACTERS = 64
OTHER_VARIABLES = (ENGINE_KEY, REVISION_VARIABLE)


def known_variables(commands: TyperGroup) -> set[str]:
    """Return the variables that some command or module reads."""
    files = (name + SUFFIX for name in SECRETS)
    return {*_of_options(commands), *VARIABLES, *SECRETS, *files, *OTHER_VARIABLES}


def _of_options(command: object) -> Iterator[str]:
    """Yield the variables of the options of a command, and of the commands in a group."""
    for option in command.params if isinstance(command, TyperCommand | TyperGroup) else ():
        if isinstance(option.envvar, str):
            yield option.envvar
    if isinstance(command, TyperGroup):
        for member in command.commands.values():
            yield from _of_options(member)


def unknown_variables(commands: TyperGroup, environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the first variables whose names begin as a setting and are none. Long names are cut."""
    begun = sorted(name for name in environment if name.startswith(PREFIX))
    known = known_variables(commands) if begun else set()
    return tuple(name[:SHOWN_CHARACTERS] for name in begun if name not in known)[:MOST_WARNINGS]


def warn_of_unknown_variables(commands: TyperGroup, environment: Mapping[str, str] = os.environ) -> None:
    """Print a warning for each unknown variable. Values are not printed."""
    for name in unknown_variables(commands, environment):
        warn(f"{name} is no setting of the gateway, and has no effect.{_hint(name, known_variables(commands))}")


def _hint(name: str, known: Collection[str]) -> str:
    import difflib  # imported late: nearly no start needs it

    nearest = difflib.get_close_matches(name, known, 1, 0.8)
    return f" Did you mean {nearest[0]}?" if nearest else ""
