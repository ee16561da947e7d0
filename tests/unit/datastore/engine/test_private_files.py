"""Files of a gateway are accessible only to their owner, whatever the umask was."""

import os
import pwd
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from datastore.engine.engine import Engine
from datastore.engine.process import EngineFailed
from datastore.engine.programs import find_program
from datastore.private_files import FolderUnusable, make_private_folder, open_private_folder
from tests.support.command_line import refused_in_a_line, run_command, serve_process, serving_anew
from tests.support.photo_files import upload_photo
from tests.support.store_engines import ROOT

# Each test starts a gateway's processes.
pytestmark = pytest.mark.proof

AS_NOBODY = """
import os, sys
os.setgroups([]), os.setgid(65534), os.setuid(65534)
for path in sys.argv[1:]:
    try:
        os.close(os.open(path, os.O_RDONLY))
    except PermissionError:
        continue
    print(path)
"""


@pytest.fixture
def reachable() -> Iterator[Path]:
    """Yield a directory that every user may enter. Those above `tmp_path` are closed to others."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def open_to_others(folder: Path) -> list[str]:
    """Return the paths in the folder, and the folder itself, with a permission for other users."""
    found = [path for path in (folder, *folder.rglob("*")) if stat.S_IMODE(path.lstat().st_mode) & 0o077]
    return [str(path.relative_to(folder)) for path in found]


def files_readable_by_nobody(paths: list[Path]) -> list[str]:
    command = [sys.executable, "-c", AS_NOBODY, *map(str, paths)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.parametrize("mask", [0, 0o022])
def test_a_gateway_keeps_tables_pictures_and_secrets_to_its_owner(mask: int, reachable: Path) -> None:
    folder = reachable / "data"
    with umask(mask), serving_anew(folder) as gateway:
        upload_photo(gateway, gateway.token())
        files = [path for path in folder.rglob("*") if path.is_file()]
        names = {path.name for path in files}
        assert {"secret", "engine.lock", "engine.json", "engine.sqlite", "engine.sqlite-wal"} <= names
        assert any("originals" in str(path) or "incoming" in str(path) for path in files)
        assert open_to_others(folder) == []
        if os.geteuid() == 0:
            control = reachable / "control"
            control.touch(0o644)
            assert files_readable_by_nobody([*files, control]) == [str(control)]


def test_a_folder_open_to_others_is_closed_and_reported_once(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with umask(0o022), serve_process(folder, "--no-demo"):
        pass
    (folder / "objects" / "originals").mkdir(parents=True)
    (folder / "objects" / "originals" / "one.jpg").write_bytes(b"\xff\xd8")
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)

    with serve_process(folder, "--no-demo") as gateway:
        assert open_to_others(folder) == []
        assert gateway.output.count("was accessible to other users") == 1
    with serve_process(folder, "--no-demo") as gateway:
        assert "was accessible to other users" not in gateway.output


def test_a_folder_of_other_things_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "home"
    folder.mkdir(mode=0o755)
    (folder / "notes.txt").write_text("mine")
    done = run_command("tables", "describe", GATEWAY_DATA_DIR=str(folder))
    refused_in_a_line(done, 1, "is open to other users and has files that are not the gateway's: choose")
    done = run_command("token", GATEWAY_DATA_DIR=str(folder))
    refused_in_a_line(done, 2, "is open to other users and has files that are not the gateway's: choose")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755


def test_a_shared_folder_such_as_tmp_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "tmp"
    folder.mkdir()
    folder.chmod(0o1777)
    with pytest.raises(FolderUnusable, match="choose a directory of its own with --data-dir"):
        open_private_folder(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o1777


@pytest.mark.skipif(os.geteuid() != 0, reason="needs two users")
async def test_an_open_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir(mode=0o755)
    nobody = pwd.getpwnam("nobody")
    os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    with pytest.raises(
        EngineFailed, match=rf"is open to other users and belongs to another user \(uid {nobody.pw_uid}"
    ):
        async with Engine(find_program(ROOT), folder):
            pass
    assert list(folder.iterdir()) == []


def test_a_folder_that_another_process_creates_at_the_same_time_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, is_dir = tmp_path / "data", Path.is_dir

    def answer_and_create(path: Path) -> bool:
        answer = is_dir(path)
        if path == folder:
            os.makedirs(folder, exist_ok=True)  # `mkdir` calls `is_dir`
        return answer

    monkeypatch.setattr(Path, "is_dir", answer_and_create)
    make_private_folder(folder)
    assert folder.exists()
