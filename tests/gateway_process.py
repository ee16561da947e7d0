"""`gateway.py` with a clock of its own (see `process_clock`): the clock's three numbers, then its own arguments."""

import sys
from typing import Any

from process_clock import process_clock

from gateway import cli
from runtime import Gateway


def main(*arguments: str) -> None:
    defaults: dict[str, Any] | None = Gateway.__init__.__kwdefaults__
    assert defaults is not None
    defaults["now"] = process_clock(*arguments[:3])
    sys.argv = ["gateway.py", *arguments[3:]]
    cli()


if __name__ == "__main__":
    main(*sys.argv[1:])
