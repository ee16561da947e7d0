"""What is fuzzed: each target makes examples of decisions, and checks them."""

from collections.abc import Callable
from functools import cached_property
from typing import Any, Generic, TypeVar

from tests.support.fuzzing import grammar, inputs, sockets, steps
from tests.support.fuzzing.application import serve_application
from tests.support.fuzzing.choices import Choices
from tests.support.fuzzing.rig import Conversation, Rig
from tests.support.fuzzing.steps import Send, Steps

T = TypeVar("T")


class Target(Generic[T]):
    """Makes an example of `T` from choices, and checks it. `check` raises, and returns what the example did.

    What it did is compared alone: examples that do something new are worth to be kept.
    """

    def __init__(self, name: str, make: Callable[[Choices], T], check: Callable[[T], Any]) -> None:
        self.name = name
        self.make = make
        self._check = check

    def check(self, example: T) -> Any:
        return self._check(example)

    def run(self, data: bytes) -> Any:
        return self.check(self.make(Choices(data)))


class _Rigs:
    """The rigs, each made when it is first needed."""

    @cached_property
    def http(self) -> Rig:
        return Rig(sockets.serve_sockets, after_switch=sockets.check_frames)

    @cached_property
    def application(self) -> Rig:
        return Rig(serve_application, after_switch=sockets.check_frames)


RIGS = _Rigs()


def _behaviour(conversation: Conversation) -> tuple[Any, ...]:
    wire = conversation.wire
    return (*conversation.statuses[:4], len(conversation.calls) > 4, len(wire.said).bit_length(), wire.waiting > 0)


def _http_example(choices: Choices) -> Steps:
    return steps.steps(choices, grammar.request_stream(choices))


def _socket_example(choices: Choices) -> Steps:
    return (Send(sockets.HANDSHAKE), *steps.steps(choices, sockets.frames(choices)))


def _application_example(choices: Choices) -> Steps:
    return steps.steps(choices, inputs.application_requests(choices))


def _neighbours_example(choices: Choices) -> tuple[Steps, Steps]:
    return _http_example(choices), choices.pick((_http_example, _socket_example))(choices)


HTTP = Target("http", _http_example, lambda example: _behaviour(RIGS.http.check(example)))
WEBSOCKET = Target("websocket", _socket_example, lambda example: _behaviour(RIGS.http.check(example)))
# Two hostile clients at once.
NEIGHBOURS = Target(
    "neighbours",
    _neighbours_example,
    lambda example: tuple(map(_behaviour, RIGS.http.check_together(example))),
)
APPLICATION = Target("application", _application_example, lambda example: _behaviour(RIGS.application.check(example)))
UPLOADS = Target("uploads", inputs.upload_form, inputs.check_upload)
JSON = Target("json", inputs.operation_body, inputs.check_body)
PARAMETERS = Target("parameters", inputs.query_string, inputs.check_query_string)
RESUMING = Target("resuming", inputs.event_id, inputs.check_event_id)
POSITIONS = Target("positions", inputs.position, inputs.check_position)
ACCEPT = Target("accept", inputs.accept, inputs.check_accept)
SECRETS = Target("secrets", inputs.secret, inputs.check_secret)

TARGETS: dict[str, Target[Any]] = {
    target.name: target
    for target in (
        HTTP,
        WEBSOCKET,
        NEIGHBOURS,
        APPLICATION,
        UPLOADS,
        JSON,
        PARAMETERS,
        RESUMING,
        POSITIONS,
        ACCEPT,
        SECRETS,
    )
}
