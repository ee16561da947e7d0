"""Executes the Dockerfile without Docker: `make rehearse`, as root on Linux.

Each stage begins with an empty folder and this machine's own /usr, Python and Node instead of the base image's. Its
RUN, COPY and ENV are executed there (chroot in a mount namespace of its own). The last stage is then run like a
container: as its user, on a read-only root, until its HEALTHCHECK passes. SIGTERM must end it.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
BOUND = ("usr", "dev", "proc", "sys")
PYTHON = sys.base_prefix.lstrip("/")  # at the same path: it looks for its libraries there
LINKS = ("bin", "sbin", "lib", "lib64")
NPM_SETTINGS = "npm-settings"
# Variables that configure how this machine fetches packages.
OF_THIS_MACHINE = ("PIP_", "NPM_", "npm_", "SSL_CERT_", "NODE_EXTRA_", "HTTP", "http", "NO_PROXY", "no_proxy")
PORT = 18099
HEALTHY_SECONDS, STOP_SECONDS = 60.0, 25.0


@dataclass
class Stage:
    """The state of a stage of the Dockerfile after the instructions executed up to now."""

    folder: Path
    workdir: str = "/"
    user: str = "0:0"
    environment: dict[str, str] = field(default_factory=dict)
    #: The values of the instructions that describe a container: VOLUME, ENTRYPOINT, CMD and HEALTHCHECK.
    metadata: dict[str, list[str]] = field(default_factory=dict)

    def place(self, path: str) -> Path:
        return self.folder / os.path.join(self.workdir, path).lstrip("/")


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the arguments of each instruction, without comments and with continued lines joined."""
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for line in re.sub(r"\\\n\s*", "", lines).splitlines():
        if line.strip():
            name, _, rest = line.partition(" ")
            yield name, rest.strip()


class Rehearsal:
    """An interpreter of a Dockerfile, with `context` as its build context. The stages are in `folder`."""

    def __init__(self, context: Path, folder: Path) -> None:
        self._context = context
        self._folder = folder
        self._ignored = (context / ".dockerignore").read_text().split("\n")
        self._named: dict[str, Stage] = {}
        self.stage = Stage(folder)

    def follow(self, text: str) -> Stage:
        """Execute the whole Dockerfile. Return its last stage."""
        for name, rest in instructions(text):
            print(f"{name} {rest[:100]}", flush=True)
            getattr(self, f"_{name.lower()}")(rest)
        return self.stage

    def _arg(self, _: str) -> None:
        """Ignore the choice of the base image: this machine takes its place."""

    def _expose(self, rest: str) -> None:
        assert rest.isdigit(), rest

    def _from(self, rest: str) -> None:
        folder = self._folder / str(len(self._named))
        for name in (*BOUND, PYTHON, "root", "tmp", "app"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        for name in LINKS:
            (folder / name).symlink_to(f"usr/{name}")
        shutil.copytree("/etc", folder / "etc", symlinks=True)
        self.stage = Stage(folder, environment={"PATH": f"/{PYTHON}/bin:/usr/sbin:/usr/bin:/sbin:/bin"})
        self._named[rest.partition(" AS ")[2]] = self.stage

    def _workdir(self, rest: str) -> None:
        self.stage.workdir = rest
        self.stage.place("").mkdir(parents=True, exist_ok=True)

    def _user(self, rest: str) -> None:
        self.stage.user = rest

    def _env(self, rest: str) -> None:
        for pair in shlex.split(rest):
            name, _, value = pair.partition("=")
            self.stage.environment[name] = value.replace("$PATH", self.stage.environment["PATH"])

    def _run(self, rest: str) -> None:
        machine = {name: value for name, value in os.environ.items() if name.startswith(OF_THIS_MACHINE)}
        command = entering(self.stage, ["sh", "-c", rest], machine | {"HOME": "/root"})
        subprocess.run(command, check=True)

    def _copy(self, rest: str) -> None:
        *sources, target = rest.split()
        start = self._context
        if sources[0].startswith("--from="):
            stage = self._named[sources.pop(0).removeprefix("--from=")]
            start = stage.folder
        for source in sources:
            path = start / source.lstrip("/")
            place = self.stage.place(target)
            if path.is_dir():
                skipped = self._skipped if start is self._context else None
                shutil.copytree(path, place, symlinks=True, dirs_exist_ok=True, ignore=skipped)
            else:
                place.mkdir(parents=True, exist_ok=True)
                assert not self._is_ignored(source), f".dockerignore leaves out {source}"
                shutil.copy2(path, place)

    def _skipped(self, folder: str, names: Sequence[str]) -> set[str]:
        below = Path(folder).relative_to(self._context)
        return {name for name in names if self._is_ignored(str(below / name))}

    def _is_ignored(self, path: str) -> bool:
        """Return whether .dockerignore excludes the path: the last line that matches it or a parent folder decides."""
        ignored = False
        paths = [path, *map(str, Path(path).parents)]
        for line in self._ignored:
            pattern = line.strip().removeprefix("!").removeprefix("**/")
            names = [Path(each).name for each in paths] if line.startswith("**/") else paths
            if pattern and not pattern.startswith("#") and any(fnmatch(name, pattern) for name in names):
                ignored = not line.startswith("!")
        return ignored

    def _note(self, name: str, rest: str) -> None:
        self.stage.metadata[name] = json.loads(rest)

    def _volume(self, rest: str) -> None:
        self._note("VOLUME", rest)

    def _entrypoint(self, rest: str) -> None:
        self._note("ENTRYPOINT", rest)

    def _cmd(self, rest: str) -> None:
        self._note("CMD", rest)

    def _healthcheck(self, rest: str) -> None:
        self._note("HEALTHCHECK", rest.partition("CMD ")[2])


def entering(
    stage: Stage, command: Sequence[str], environment: Mapping[str, str], *, volumes: Mapping[str, Path] | None = None
) -> list[str]:
    """Return a command that runs `command` in the stage's folder. With `volumes`, only these and /tmp are writable."""
    root = shlex.quote(str(stage.folder))
    mounts = [f"mount --bind {root} {root}"]
    mounts += [f"mount --rbind /{name} {root}/{name}" for name in BOUND]
    mounts += [f"mount --bind {shlex.quote(sys.base_prefix)} {root}/{PYTHON}"]
    mounts += [f"mount -o remount,bind,ro {root}/{name}" for name in ("usr", PYTHON)]
    npm = Path.home() / ".npmrc"  # where this machine's packages come from
    if npm.is_file():
        mounts += [f"touch {root}/{NPM_SETTINGS}", f"mount --bind {npm} {root}/{NPM_SETTINGS}"]
    if volumes is not None:
        mounts += [f"mount --bind {shlex.quote(str(kept))} {root}{place}" for place, kept in volumes.items()]
        mounts += [f"mount -o remount,bind,ro {root}", f"mount -t tmpfs tmpfs {root}/tmp"]
    environment = {"NPM_CONFIG_USERCONFIG": f"/{NPM_SETTINGS}", **stage.environment, **environment}
    assignments = [f"{name}={value}" for name, value in environment.items()]
    inside = ["chroot", f"--userspec={stage.user}", str(stage.folder), "/usr/bin/env", "-i", "-C", stage.workdir]
    script = " && ".join([*mounts, "exec " + shlex.join([*inside, *assignments, *command])])
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]


def run(stage: Stage, data: Path) -> None:
    """Run the stage like a container. It must become healthy in time on a read-only root, and end at SIGTERM."""
    user, group = map(int, stage.user.split(":"))
    assert user, "The container would run as root."
    os.chown(data, user, group)
    environment = {"GATEWAY_PORT": str(PORT), "GATEWAY_SECRET": "x" * 32}
    volumes = dict.fromkeys(stage.metadata["VOLUME"], data)
    command = [*stage.metadata["ENTRYPOINT"], *stage.metadata["CMD"]]
    began = time.monotonic()
    process = subprocess.Popen(entering(stage, command, environment, volumes=volumes))
    try:
        check = entering(stage, stage.metadata["HEALTHCHECK"], environment, volumes=volumes)
        while subprocess.run(check, capture_output=True).returncode:
            assert process.poll() is None, "The process has ended."
            assert time.monotonic() - began < HEALTHY_SECONDS, "The process did not become healthy in time."
            time.sleep(0.2)
        print(f"healthy after {time.monotonic() - began:.1f} s", flush=True)
        process.terminate()
        stopping = time.monotonic()
        status = process.wait(STOP_SECONDS)
        print(f"ended with {status} in {time.monotonic() - stopping:.1f} s of SIGTERM")
        assert status == 0, status
    finally:
        process.kill()


def main() -> None:
    with TemporaryDirectory(prefix="rehearsal-") as folder:
        stage = Rehearsal(ROOT, Path(folder) / "stages").follow((ROOT / "Dockerfile").read_text())
        size = subprocess.run(["du", "-sm", stage.folder / "opt", stage.folder / "app"], capture_output=True, text=True)
        print("MB beside the base image:", ", ".join(line.split()[0] for line in size.stdout.splitlines()))
        data = Path(folder) / "data"
        data.mkdir()
        os.chmod(folder, 0o755)  # the stage's user must be able to enter it
        run(stage, data)


if __name__ == "__main__":
    main()
