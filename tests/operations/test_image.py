"""The content of the image by the Dockerfile. `make rehearse` follows all steps, which takes a minute and root."""

from deploy.rehearse import instructions
from tests.support.layers import MAY_IMPORT
from tests.support.store_engines import ROOT

INSTRUCTIONS = list(instructions((ROOT / "Dockerfile").read_text()))


def copied() -> set[str]:
    """Return the paths of this folder that any stage copies."""
    rests = [rest.split() for name, rest in INSTRUCTIONS if name == "COPY"]
    return {source for parts in rests if not parts[0].startswith("--from") for source in parts[:-1]}


def test_every_module_is_in_the_image() -> None:
    modules = {name if (ROOT / name).is_dir() else f"{name}.py" for name in MAY_IMPORT}
    assert "gateway.py" in modules
    assert modules <= copied()


def test_the_copied_files_reach_the_builder_and_nothing_else_does() -> None:
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*"
    sent = {line.removeprefix("!") for line in lines if line.startswith("!")}
    assert sent == {source.partition("/")[0] for source in copied()}


def test_it_runs_as_an_unprivileged_user_without_a_shell() -> None:
    last = {name: rest for name, rest in INSTRUCTIONS}
    assert last["USER"] == "10001:10001"
    assert last["ENTRYPOINT"].startswith("[")
    assert last["CMD"].startswith("[")
