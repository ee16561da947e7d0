"""nginx and HAProxy with the configurations of `deploy/proxies`, as processes on ports of this machine."""

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.support.ports import free_port
from tests.support.store_engines import ROOT

FOLDER = ROOT / "deploy" / "proxies"


def _program(name: str) -> str:
    """Return the path of a program. Skip the test if it is missing, unless REQUIRE_PROXIES is 1."""
    # Debian has both in a folder that is not on the PATH of users.
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if found is None:
        message = f"{name} is needed: it is Debian's package {name}."
        if os.environ.get("REQUIRE_PROXIES") == "1":
            pytest.fail(message)
        pytest.skip(message)
    return found


class ReverseProxy:
    """A proxy in front of gateways at two ports. Its files are in `folder`."""

    def __init__(self, name: str, folder: Path, gateways: Sequence[int]) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = folder / f"{name}.log"
        command = proxy_command(name, folder, self.port, gateways)
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT)

    @property
    def log(self) -> str:
        return self._log.read_text()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(20)


def proxy_command(name: str, folder: Path, port: int, gateways: Sequence[int]) -> list[str | Path]:
    """Return the command that runs a proxy at `port` in front of gateways at two ports. Its files are in `folder`."""
    start, file = PROXIES[name]
    text = (FOLDER / file).read_text()
    for sample, gateway in zip((8000, 8001), gateways, strict=True):
        assert f"127.0.0.1:{sample}" in text
        text = text.replace(f"127.0.0.1:{sample}", f"127.0.0.1:{gateway}")
    return start(_program(name), text, port, folder)


def _nginx(program: str, text: str, port: int, folder: Path) -> list[str | Path]:
    assert text.count("listen 80;") == 1
    included = text.replace("listen 80;", f"listen 127.0.0.1:{port};").replace(
        "/var/log/nginx/gateway.log", "/dev/stdout"
    )
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    folders = "".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)
    user = "user root;" if os.geteuid() == 0 else ""  # its workers write into the folder of the test
    path = folder / "nginx.conf"
    path.write_text(
        f"{user} daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log stderr; events {{}}\n"
        f"http {{ {folders}\n{included}\n}}\n"
    )
    return [program, "-p", folder, "-e", "stderr", "-c", path]


def _haproxy(program: str, text: str, port: int, folder: Path) -> list[str | Path]:
    assert text.count("bind :80 ") == 1
    path = folder / "haproxy.cfg"
    path.write_text(text.replace("bind :80 ", f"bind 127.0.0.1:{port} "))
    return [program, "-db", "-f", path]


Start = Callable[[str, str, int, Path], list[str | Path]]
PROXIES: dict[str, tuple[Start, str]] = {"nginx": (_nginx, "nginx.conf"), "haproxy": (_haproxy, "haproxy.cfg")}
