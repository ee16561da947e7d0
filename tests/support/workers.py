"""Steps and data of the tests of workers."""

from pathlib import Path

from tests.support.command_line import GatewayProcess

# What they do in the background is tested elsewhere.
QUIET = ("--no-demo", "--matches", "none", "--no-feed-pipeline")


def child_processes(gateway: GatewayProcess) -> list[int]:
    """All processes that it has started, the engine among them."""
    pid = gateway.process.pid
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def workers(gateway: GatewayProcess, part: str = "serving") -> set[int]:
    """Those whose environment says so: in a process that has just begun there is nothing to read yet."""
    found = set()
    for child in child_processes(gateway):
        try:
            received = Path(f"/proc/{child}/environ").read_bytes()
        except OSError:
            continue
        if f'"part": "{part}"'.encode() in received:
            found.add(child)
    return found
