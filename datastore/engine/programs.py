"""The programs that can be the embedded engine: dynoxide, and MiniStack where dynoxide is not installed."""

import os
import platform
import shutil
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

# Names dynoxide's program.
BINARY = "DYNOXIDE_BINARY"
HOW_TO_GET_IT = (
    "get it with `npm ci` in the project folder, or MiniStack in its place with `make setup`, or install it from "
    "https://github.com/nubo-db/dynoxide and put it on PATH, or use another store: --store aws or --store URL"
)
SERVER = Path(__file__).with_name("ministack_server.py")


class EngineMissing(Exception):
    """No engine's program is on this machine; the message says how to get one."""


class EngineProgram(Protocol):
    """A program that can be the embedded engine.

    `file` is the name of the file that holds its tables in a data directory. `sockets` is whether it listens on a Unix
    socket, which needs no filter to be closed to others. `orphaned` is the signal that ends it with its owner on Linux.
    """

    @property
    def name(self) -> str: ...
    @property
    def file(self) -> str: ...
    @property
    def sockets(self) -> bool: ...
    @property
    def orphaned(self) -> signal.Signals: ...
    def command(self, own: tuple[str, int] | Path, database: Path | None, /) -> list[str | Path]: ...


@dataclass(frozen=True)
class Dynoxide:
    """dynoxide, whose tables are in a SQLite database."""

    binary: Path
    name: ClassVar[str] = "dynoxide"
    file: ClassVar[str] = "engine.sqlite"
    sockets: ClassVar[bool] = False
    orphaned: ClassVar[signal.Signals] = getattr(signal, "SIGKILL", signal.SIGTERM)

    def command(self, own: tuple[str, int] | Path, database: Path | None) -> list[str | Path]:
        """Return the program and its arguments, to listen at this address on this database, or in memory."""
        assert isinstance(own, tuple)
        kept: list[str | Path] = [] if database is None else ["--db-path", database]
        return [self.binary, "serve", "--host", own[0], "--port", str(own[1]), *kept]


@dataclass(frozen=True)
class MiniStack:
    """MiniStack in an environment of its own, whose tables are in memory, and are written to a file now and then."""

    python: Path
    name: ClassVar[str] = "MiniStack"
    file: ClassVar[str] = "engine.ministack.json"
    sockets: ClassVar[bool] = True
    orphaned: ClassVar[signal.Signals] = signal.SIGTERM  # it writes the file then

    def command(self, own: tuple[str, int] | Path, database: Path | None) -> list[str | Path]:
        """Return the program and its arguments, to listen at this address on this file, or in memory."""
        assert isinstance(own, Path)
        return [self.python, "-I", SERVER, own, *([] if database is None else [database])]


# Which program's tables a file in a data directory holds.
FILES = {program.file: program.name for program in (Dynoxide, MiniStack)}


def find_program(root: Path) -> EngineProgram:
    """The engine's program: dynoxide where it is installed, else MiniStack. Raises `EngineMissing`."""
    try:
        return Dynoxide(find_binary(root))
    except EngineMissing:
        python = root / ".venv-ministack" / "bin" / "python"
        if os.environ.get(BINARY) or os.name != "posix" or not python.with_name("ministack").is_file():
            raise
    return MiniStack(python)


def find_binary(root: Path) -> Path:
    """dynoxide's program: $DYNOXIDE_BINARY, else the npm package under `root`, else PATH. Raises `EngineMissing`."""
    if named := os.environ.get(BINARY):
        if Path(named).is_file():
            return Path(named)
        raise EngineMissing(f"{BINARY} names {named}, which is not a file: correct it, or {HOW_TO_GET_IT}.")
    packaged = root / "node_modules" / "@dynoxide" / npm_platform() / _program()
    found = packaged if packaged.is_file() else shutil.which("dynoxide")
    if found is None:
        raise EngineMissing(f"The embedded engine, dynoxide, is not installed: {HOW_TO_GET_IT}.")
    return Path(found)


def _program() -> str:
    return "dynoxide.exe" if sys.platform == "win32" else "dynoxide"


def npm_platform() -> str:
    """The name of this system in npm's packages, such as linux-x64."""
    machine = platform.machine().lower()
    arch = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64"}.get(machine, machine)
    return f"{sys.platform}-{arch}"


if __name__ == "__main__":
    # `make setup` gets MiniStack where this fails, and only there.
    try:
        find_binary(Path(__file__).resolve().parents[2])
    except EngineMissing:
        sys.exit(1)
