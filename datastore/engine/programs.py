"""The programs that can be the embedded engine: dynoxide, and MiniStack where dynoxide is not installed."""

import os
import platform
import shutil
import signal
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

# The variable with the path of dynoxide's program.
BINARY = "DYNOXIDE_BINARY"
INSTALL_HINT = (
    "install it with `npm ci` in the project folder, or MiniStack instead with `make setup`, or install it from "
    "https://github.com/nubo-db/dynoxide and put it on PATH, or use another store: --store aws or --store URL"
)
SERVER = Path(__file__).with_name("ministack_server.py")


class EngineMissing(Exception):
    """No engine is installed; the message says how to install one."""


class EngineProgram(ABC):
    """A program that can be the embedded engine."""

    name: ClassVar[str]
    #: The name of the file with its tables in a data directory.
    file: ClassVar[str]
    #: Whether it listens on a Unix socket, which needs no filter against other users.
    sockets: ClassVar[bool]
    #: The signal with which the kernel ends it when its owner ends, on Linux.
    orphaned: ClassVar[signal.Signals]

    @abstractmethod
    def command(self, address: tuple[str, int] | Path, database: Path | None, /) -> list[str | Path]:
        """Return the command that serves the database, or tables in memory, at this address."""


@dataclass(frozen=True)
class Dynoxide(EngineProgram):
    """dynoxide, which stores its tables in a SQLite database."""

    binary: Path
    name = "dynoxide"
    file = "engine.sqlite"
    sockets = False
    orphaned = getattr(signal, "SIGKILL", signal.SIGTERM)

    def command(self, address: tuple[str, int] | Path, database: Path | None) -> list[str | Path]:
        assert isinstance(address, tuple)
        options: list[str | Path] = [] if database is None else ["--db-path", database]
        return [self.binary, "serve", "--host", address[0], "--port", str(address[1]), *options]


@dataclass(frozen=True)
class MiniStack(EngineProgram):
    """MiniStack in a separate environment. Its tables are in memory, and are written to a file every few seconds."""

    python: Path
    name = "MiniStack"
    file = "engine.ministack.json"
    sockets = True
    orphaned = signal.SIGTERM  # it writes the file then

    def command(self, address: tuple[str, int] | Path, database: Path | None) -> list[str | Path]:
        assert isinstance(address, Path)
        return [self.python, "-I", SERVER, address, *([] if database is None else [database])]


# The programs by the names of their files in a data directory.
FILES = {program.file: program.name for program in (Dynoxide, MiniStack)}


def find_program(root: Path) -> EngineProgram:
    """Return dynoxide if it is installed, else MiniStack. Raises `EngineMissing`."""
    try:
        return Dynoxide(find_binary(root))
    except EngineMissing:
        python = root / ".venv-ministack" / "bin" / "python"
        if os.environ.get(BINARY) or os.name != "posix" or not python.with_name("ministack").is_file():
            raise
    return MiniStack(python)


def find_binary(root: Path) -> Path:
    """Find dynoxide: $DYNOXIDE_BINARY, else the npm package under `root`, else PATH. Raises `EngineMissing`."""
    if named := os.environ.get(BINARY):
        if Path(named).is_file():
            return Path(named)
        raise EngineMissing(f"{BINARY} names {named}, which is not a file: correct it, or {INSTALL_HINT}.")
    program = "dynoxide.exe" if sys.platform == "win32" else "dynoxide"
    packaged = root / "node_modules" / "@dynoxide" / npm_platform() / program
    found = packaged if packaged.is_file() else shutil.which("dynoxide")
    if found is None:
        raise EngineMissing(f"The embedded engine, dynoxide, is not installed: {INSTALL_HINT}.")
    return Path(found)


def npm_platform() -> str:
    """Return the name of this system in npm packages, such as linux-x64."""
    machine = platform.machine().lower()
    arch = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64"}.get(machine, machine)
    return f"{sys.platform}-{arch}"


if __name__ == "__main__":
    # `make setup` installs MiniStack if this fails.
    try:
        find_binary(Path(__file__).resolve().parents[2])
    except EngineMissing:
        sys.exit(1)
