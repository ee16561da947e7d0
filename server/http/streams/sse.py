"""Server-sent events: the format of streams in graphql-sse's distinct connections mode.

https://github.com/enisdenjo/graphql-sse/blob/master/PROTOCOL.md
https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from starlette.types import Send

from server.http.headers import EVENTS
from server.operations.outcome import Outcome
from server.operations.request import Transport

# An EventSource always reconnects. It then sends this id, which shows that it has received the end of the stream.
END_ID = "end"


class ServerSentEvents:
    """Results as events: `next` for each, and `complete`."""

    transport = Transport.EVENTS
    content_type = f"{EVENTS}; charset=utf-8".encode()
    heartbeat = b":\n\n"
    # A browser dispatches no event without a data field.
    complete = f"id: {END_ID}\nevent: complete\ndata:\n\n".encode()

    def begin(self, retry_seconds: float) -> bytes:
        return f"retry: {retry_seconds * 1000:.0f}\n\n".encode()

    def result(self, outcome: Outcome, id: str | None, *, will_retry: bool) -> bytes:
        line = b"" if id is None else _id(id)
        # JSON escapes line breaks, so that the data is one line.
        return b"%bevent: next\ndata: %b\n\n" % (line, outcome.body)

    def position(self, id: str) -> bytes:
        """Return a block without data: the client remembers its id, and dispatches no event."""
        return _id(id) + b"\n"

    def end(self, retry_ms: int | None, *, is_cut: bool) -> bytes:
        # It holds for the next connection only: each stream begins with the usual `retry`.
        return b"" if retry_ms is None else b"retry: %d\n\n" % retry_ms


def _id(id: str) -> bytes:
    """Return the line of an id."""
    assert id.isprintable(), id  # a line break would end the line early
    return b"id: %b\n" % id.encode()


async def send_end(send: Send) -> None:
    """Send 204 to a browser that reconnects after `complete`: it then stops reconnecting."""
    await send({"type": "http.response.start", "status": 204, "headers": [(b"cache-control", b"no-store")]})
    await send({"type": "http.response.body", "body": b""})
