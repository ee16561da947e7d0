"""Hostile bodies, forms, URLs, ids and headers: see `fuzzing`."""

import logging

import pytest

from tests.support.fuzzing.running import fuzz
from tests.support.fuzzing.sockets import HANDSHAKE
from tests.support.fuzzing.steps import Do, Send, Steps, whole
from tests.support.fuzzing.targets import (
    ACCEPT,
    APPLICATION,
    JSON,
    PARAMETERS,
    POSITIONS,
    RESUMING,
    RIGS,
    SECRETS,
    UPLOADS,
    Target,
)

# There are thousands of examples with limits of CPU time. Only a run that hangs takes this long.
pytestmark = pytest.mark.timeout(900)

EXAMPLES = {
    APPLICATION: 3_000,
    UPLOADS: 2_000,
    JSON: 4_000,
    PARAMETERS: 4_000,
    RESUMING: 3_000,
    POSITIONS: 3_000,
    ACCEPT: 800,
    SECRETS: 600,
}


@pytest.mark.parametrize("target", EXAMPLES, ids=lambda target: target.name)
def test_the_examples_of_a_grammar(target: Target[object]) -> None:
    fuzz(target, EXAMPLES[target])


def posted_steps(body: bytes) -> Steps:
    """Return the steps of a request with this body."""
    head = b"POST /graphql HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return whole(head % len(body) + body)


FOUND = {
    "a document without fields": posted_steps(b'{"query":"{}"}'),
    "a field without fields": posted_steps(b'{"query":"{me{}}"}'),
    "a fragment without fields": posted_steps(b'{"query":"{...F} fragment F on Query {}"}'),
    "a subscription without fields": posted_steps(b'{"query":"subscription {}"}'),
}


@pytest.mark.parametrize("name", FOUND)
def test_regressions(name: str) -> None:
    conversation = RIGS.application.check(FOUND[name])
    assert b"Syntax Error" in conversation.responses[0].body


def test_a_shutdown_while_a_handshake_for_an_unknown_path_is_refused() -> None:
    handshake = HANDSHAKE.replace(b" /graphql ", b" / ")
    assert handshake != HANDSHAKE
    APPLICATION.check((Send(handshake), Do("shutdown")))


@pytest.mark.parametrize("text", [",", "a/b,", ";", "a;b=c;", ";q=0.1,", "a=", "\xff,", " , "])
def test_an_accept_of_any_length_costs_little(text: str) -> None:
    ACCEPT.check((text * 32_000)[:32_000])


def test_invalid_forms_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Anyone can send any number of them."""
    caplog.set_level(logging.DEBUG)
    UPLOADS.check(("multipart/form-data; boundary=xyz", (b"--xyz\r\nX-A\r\n\r\n",)))
    assert not [record for record in caplog.records if record.name.startswith("python_multipart")]
