"""The version of the gateway, and the revision of its sources."""

import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

VERSION = "1.0.0"
#: The revision, which the build of an image sets. In a clone of the repository the commit is read from git's files.
REVISION_VARIABLE = "GATEWAY_REVISION"
REVISION_CHARACTERS = 12
ROOT = Path(__file__).resolve().parents[1]


class Build(NamedTuple):
    """The version of a running gateway. `revision` is empty if it is not known."""

    version: str
    revision: str
    python: str

    def __str__(self) -> str:
        revision = f"{self.revision}, " if self.revision else ""
        return f"{self.version} ({revision}Python {self.python})"


@cache
def running_build() -> Build:
    """Return the build of this process, read once."""
    return build_in(os.environ, ROOT)


def build_in(environment: Mapping[str, str], root: Path) -> Build:
    """Return the build of the sources in `root`."""
    revision = environment.get(REVISION_VARIABLE) or _commit(root / ".git")
    return Build(VERSION, revision[:REVISION_CHARACTERS], platform.python_version())


def _commit(git: Path) -> str:
    """Return the commit that is checked out; empty if the folder is no clone, or packs its references."""
    with suppress(OSError):
        if git.is_file():  # of a worktree: `gitdir: PATH`
            git = Path(git.read_text().partition(":")[2].strip())
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref: "):
            return head
        common = git / "commondir"
        folder = (git / common.read_text().strip()) if common.is_file() else git
        return (folder / head.removeprefix("ref: ")).read_text().strip()
    return ""
