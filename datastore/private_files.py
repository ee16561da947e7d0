"""Directories and files with permissions for their owner only, independent of the umask."""

import errno
import logging
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

FOLDER_MODE, FILE_MODE = 0o700, 0o600
OTHERS_PERMISSIONS = 0o077  # the permissions of the group and of other users
# An existing directory with one of these files is a data directory of the gateway.
OWN_FILES = ("secret", "engine.lock", "memory.lock", "engine.json", "engine.sqlite", "objects", "search")

logger = logging.getLogger(__name__)


class FolderUnusable(Exception):
    """The data directory cannot be used. The message says why, and what to do."""


def open_private_folder(folder: Path) -> None:
    """Make sure that a data directory exists and that only its owner may use it.

    The permissions of other users are removed from a data directory of the gateway and from all of its files.

    Raises `FolderUnusable` if such a directory belongs to another user or has files of other programs, or if the
    directory cannot be created or used.
    """
    try:
        make_private_folder(folder)
        if os.name == "posix":
            _restrict(folder)
    except OSError as problem:
        raise unusable_folder(folder, problem) from problem


def unusable_folder(folder: Path, problem: OSError) -> FolderUnusable:
    """Return the error for a data directory that the operating system refuses."""
    reason = problem.strerror or str(problem)
    is_full = problem.errno in (errno.ENOSPC, errno.EDQUOT)
    advice = "Make room on its disk" if is_full else "Make it a directory that this user may write to"
    return FolderUnusable(
        f"The data directory {folder} cannot be used: {reason}"
        + (f" ({problem.filename})." if problem.filename and str(problem.filename) != str(folder) else ".")
        + f" {advice}, or choose another one with --data-dir."
    )


def make_private_folder(folder: Path) -> None:
    """Create a directory and its missing parents with mode 0700. Raises `OSError`."""
    if folder.is_dir():
        return
    if not folder.exists():
        make_private_folder(folder.parent)
        folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
    elif not folder.is_dir():  # another process may have created it meanwhile
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))


def open_private_file(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file as the `opener` of `open`. A new file has mode 0600."""
    return os.open(path, flags, FILE_MODE)


def write_private_file(path: Path, text: str) -> None:
    """Replace a file by one of mode 0600 with this text, completely or not at all. Raises `OSError`."""
    draft = path.with_name(f"{path.name}.tmp")
    with open(draft, "w", opener=open_private_file) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def _restrict(folder: Path) -> None:
    found = folder.stat()
    if not found.st_mode & OTHERS_PERMISSIONS:
        _remove_permissions(folder.iterdir())
        return
    _check_owned(folder, found)
    folder.chmod(FOLDER_MODE)
    _remove_permissions(_descendants(folder))
    mode = stat.S_IMODE(found.st_mode)
    logger.warning(
        "The data directory %s was accessible to other users (mode %o); their permissions were removed.", folder, mode
    )


def _check_owned(folder: Path, found: os.stat_result) -> None:
    if found.st_uid != os.geteuid():
        raise FolderUnusable(
            f"The data directory {folder} is open to other users and belongs to another user (uid {found.st_uid}): "
            "run `chmod 700` as its owner, or choose another one with --data-dir."
        )
    names = set(os.listdir(folder))
    if found.st_mode & stat.S_ISVTX or (names and names.isdisjoint(OWN_FILES)):
        raise FolderUnusable(
            f"The data directory {folder} is open to other users and has files that are not the gateway's: "
            "choose a directory of its own with --data-dir, or run `chmod 700` on it."
        )


def _descendants(folder: Path) -> Iterator[Path]:
    for where, folders, files in os.walk(folder):
        yield from (Path(where, name) for name in (*folders, *files))


def _remove_permissions(paths: Iterable[Path]) -> None:
    """Remove the permissions of other users from the paths that are files or directories of the process's user."""
    for path in paths:
        try:
            found = path.lstat()
            is_plain = stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)
            if is_plain and found.st_mode & OTHERS_PERMISSIONS and found.st_uid == os.geteuid():
                path.chmod(stat.S_IMODE(found.st_mode) & ~OTHERS_PERMISSIONS)
        except FileNotFoundError:
            continue  # another process has removed it
