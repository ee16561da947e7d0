"""What a client does on a connection, step by step."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tests.support.fuzzing.choices import Choices
from tests.support.fuzzing.wire import Wire


@dataclass(frozen=True)
class Send:
    """Send bytes, which the server gets in one piece."""

    data: bytes


@dataclass(frozen=True)
class Wait:
    """Let seconds of virtual time pass."""

    seconds: float


@dataclass(frozen=True)
class Do:
    """Do what one of `DEEDS` is called."""

    deed: str


Step = Send | Wait | Do
Steps = tuple[Step, ...]
DEEDS: dict[str, Callable[[Wire], None]] = {
    "stop reading": Wire.stop_reading,
    "read on": Wire.read_on,
    "finish": Wire.finish,
    "leave": Wire.leave,
    "reset": Wire.reset,
}
# The server's own: uvicorn calls it when the process is to end.
SHUTDOWN = "shutdown"

_WAITS = (0.01, 0.5, 1.0, 3.0, 9.0, 11.0, 66.0)
_ENDINGS = ("finish", "leave", "reset", "stop reading", SHUTDOWN)


def whole(data: bytes) -> Steps:
    """Return the steps that send the bytes at once."""
    return (Send(data),)


def in_pieces(pieces: Iterable[bytes]) -> Steps:
    """Return the steps that send the bytes piece by piece."""
    return tuple(Send(piece) for piece in pieces if piece)


def split(choices: Choices, data: bytes) -> list[bytes]:
    """Split the bytes into some pieces: mostly one, a few, or one for each byte."""
    match choices.below(8):
        case 0 | 1 | 2:
            return [data]
        case 3 if len(data) < 1_500:
            return [data[at : at + 1] for at in range(len(data))]
        case _:
            places = sorted({choices.below(len(data) + 1) for _ in range(1 + choices.below(6))})
            return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]


def steps(choices: Choices, data: bytes) -> Steps:
    """Send the bytes in pieces, with pauses between them, and with a client that stops reading, or goes."""
    taken: list[Step] = []
    for piece in split(choices, data):
        if choices.rng(1):
            taken.append(_deed(choices))
        if piece:
            taken.append(Send(piece))
    if choices.rng(7):
        taken.append(_deed(choices))
    return tuple(taken)


def _deed(choices: Choices) -> Step:
    match choices.below(3):
        case 0:
            return Wait(choices.pick(_WAITS))
        case 1:
            return Do(choices.pick(("stop reading", "read on")))
        case _:
            return Do(choices.pick(_ENDINGS))
