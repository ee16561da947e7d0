"""The page of the settings: `python -m runtime.declared.page` prints docs/settings.md.

The modules that read a variable check its value.
"""

from collections.abc import Iterator

from runtime.declared.serving import CAPACITY, DOCUMENTS, IDENTITY, PROCESSES
from runtime.declared.systems import LIVE, OBSERVABILITY, STORE, SYSTEMS
from runtime.declared.variable import Concern, Variable

CONCERNS = (STORE, PROCESSES, IDENTITY, DOCUMENTS, CAPACITY, LIVE, SYSTEMS, OBSERVABILITY)
INTRODUCTION = """# Settings

`make docs` generates this page from `runtime/declared/`.

A setting is an option of `gateway.py serve` (see `--help`) or an environment variable; the option takes precedence. A
value outside the allowed ones ends the command with a message that names the variable. Unknown variables that begin
with `GATEWAY_` are reported with the nearest name. `gateway.py doctor` checks the settings of a machine
([how](operations.md#checking-an-installation)).
"""


def declared() -> Iterator[Variable]:
    """Yield all variables in the order of the page."""
    for concern in CONCERNS:
        yield from concern.variables


def without_option() -> Iterator[str]:
    """Yield the names of the variables of the gateway that no option of `serve` sets."""
    for variable in declared():
        if not variable.option:
            yield from (name for name in variable.names if not name.startswith("OTEL_"))


def page() -> str:
    """Return the page as Markdown."""
    return "\n".join([INTRODUCTION, *(_section(concern) for concern in CONCERNS)])


def _section(concern: Concern) -> str:
    lines = [
        f"## {concern.title}",
        "",
        "| variable | option | values | default | what it sets |",
        "|---|---|---|---|---|",
    ]
    lines += [_row(variable) for variable in concern.variables]
    return "\n".join(lines) + "\n"


def _row(variable: Variable) -> str:
    names = ", ".join(f"`{name}`" for name in variable.names)
    return f"| {names} | {variable.option} | {variable.values} | {variable.default} | {variable.effect} |"


if __name__ == "__main__":
    print(page(), end="")
