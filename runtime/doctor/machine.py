"""Checks of the machine: Python, GraphiQL, the engine, open files, the disk and the address."""

import errno
import platform
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

from datastore.database import StoreOptions
from datastore.engine.programs import Dynoxide, find_program
from runtime.data_disk import FULL_BYTES, LEAST_SHARE, free_space
from runtime.doctor.findings import Finding, Level
from server.admission.connection_limits import RESERVED_DESCRIPTORS, raise_descriptor_limit
from server.http.graphiql import PAGE
from server.settings import Settings
from server.version import running_build

LEAST_PYTHON = (3, 11)
VERSION_SECONDS = 5.0


def check_programs(store: StoreOptions) -> Iterator[Finding]:
    """Check the gateway, Python, GraphiQL and the engine. Raises `EngineMissing`."""
    build = running_build()
    yield Finding(Level.OK, "Gateway", str(build))
    if tuple(map(int, platform.python_version_tuple()[:2])) < LEAST_PYTHON:
        yield Finding(Level.ERROR, "Python", f"{build.python} is too old: install Python 3.11 or newer.")
    if PAGE.is_file():
        yield Finding(Level.OK, "GraphiQL", "It is built.")
    else:
        yield Finding(Level.WARNING, "GraphiQL", "It is not built: run `make setup`. The API works without it.")
    if store.embedded:
        program = find_program(store.root)
        version = _version(program.binary) if isinstance(program, Dynoxide) else "in .venv-ministack"
        yield Finding(Level.OK, "Engine", f"{program.name} {version}")


def _version(binary: Path) -> str:
    """Return the version that the engine prints, without its name."""
    ran = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=VERSION_SECONDS, check=True)
    return ran.stdout.strip().rpartition(" ")[2]


def check_open_files(settings: Settings) -> Iterator[Finding]:
    """Check that the process may open a file for each connection that the settings allow."""
    descriptors = raise_descriptor_limit()
    wanted = settings.capacity.connections
    if descriptors is None or descriptors >= wanted + RESERVED_DESCRIPTORS:
        limit = "any number of" if descriptors is None else f"{descriptors:,}"
        yield Finding(Level.OK, "Open files", f"A process may open {limit} files.")
        return
    yield Finding(
        Level.WARNING,
        "Open files",
        f"A process may open {descriptors:,} files, too few for {wanted:,} connections (GATEWAY_MAX_CONNECTIONS): "
        f"raise `ulimit -n` to {wanted + RESERVED_DESCRIPTORS:,} or more, in a systemd unit with LimitNOFILE=.",
    )


def check_disk(folder: Path) -> Iterator[Finding]:
    """Check the free space for the data directory. One that does not exist yet is created in its parent."""
    existing = next((path for path in (folder, *folder.resolve().parents) if path.is_dir()), None)
    space = None if existing is None else free_space(existing)
    if space is None:
        yield Finding(Level.ERROR, "Disk", f"The disk of {folder} cannot be read: choose another --data-dir.")
        return
    free, size = space
    text = f"{free // 2**20:,} MB of {size // 2**20:,} MB are free for {folder}"
    if free < FULL_BYTES:
        yield Finding(Level.ERROR, "Disk", f"{text}: free some space. Writes are refused until then.")
    elif free < LEAST_SHARE * size:
        yield Finding(Level.WARNING, "Disk", f"{text}: free some space.")
    else:
        yield Finding(Level.OK, "Disk", f"{text}.")


def check_address(settings: Settings) -> Iterator[Finding]:
    """Check that `serve` can listen on the address and port of the settings."""
    shown = f"{settings.host}:{settings.port}"
    try:
        _listen(settings.host, settings.port)
    except OSError as problem:
        if problem.errno == errno.EADDRINUSE:
            text = "is in use: a gateway is running there, or choose another --port (GATEWAY_PORT)."
            yield Finding(Level.WARNING, "Address", f"{shown} {text}")
        else:
            text = f"cannot be listened on ({problem.strerror or problem}): correct --host and --port."
            yield Finding(Level.ERROR, "Address", f"{shown} {text}")
    else:
        yield Finding(Level.OK, "Address", f"{shown} is free.")


def _listen(host: str, port: int) -> None:
    """Listen on an address for a moment. Raises `OSError`."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(1)
