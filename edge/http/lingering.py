"""How long a connection stays: idle, with a client that does not read, and until the last of it has been read."""

import asyncio
from collections.abc import Callable

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from edge.capacity.connections import Patience
from edge.http.exchange import Exchange

# Who has sent something this recently, and not all of it, is taken to go on.
SENDING_SECONDS = 0.1


class Lingering(HttpToolsProtocol):
    """What time does to a connection. Each of its timers has a name, and there is one of each."""

    cycle: Exchange  # type: ignore[assignment]

    def linger(self, patience: Patience) -> None:
        """It has been made: from now on it may be kept for so long."""
        self._patience = patience
        self._deaf = False  # what still comes is thrown away
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._heard = self.loop.time()
        self._idle_since: float | None = None

    def end(self) -> None:
        """End the connection so that the client can still read its answer, and does so soon.

        What it sends is read and thrown away for a moment: closed at once, the answer could be lost with it.
        """
        self._deaf = True
        self._unset_keepalive_if_required()
        if self.transport.is_closing() or "end" in self._timers:
            return
        self._after("end", self._patience.linger_seconds, self._end_now)
        self.flow.resume_reading()
        self._half_close()

    def _half_close(self) -> None:
        """Not while a body is on its way: its client may take our end for a broken connection, and see no answer."""
        on_its_way = self.cycle is not None and self.cycle.more_body
        if on_its_way and self.loop.time() - self._heard < SENDING_SECONDS:
            self._after("half close", SENDING_SECONDS, self._half_close)
        elif self.transport.can_write_eof():
            self.transport.write_eof()

    def _end_now(self) -> None:
        if self.transport.get_write_buffer_size():
            self._watch_the_reader()
        else:
            self.transport.abort()

    def eof_received(self) -> None:
        """The client sends nothing more: the connection is closed as soon as it has read what is there."""
        if self.transport.get_write_buffer_size():
            self._watch_the_reader()

    # A client that asks for nothing

    def _idle(self) -> None:
        """It has its answers. One timer looks at that now and then."""
        self._idle_since = self.loop.time()
        if "idle" not in self._timers:
            self._after("idle", self.timeout_keep_alive, self._check_idleness)

    def _unset_keepalive_if_required(self) -> None:
        self._idle_since = None

    def _check_idleness(self) -> None:
        """Whoever has asked again meanwhile has begun anew."""
        now = self.loop.time()
        since = now if self._idle_since is None else self._idle_since
        left = since + self.timeout_keep_alive - now
        if left <= 0:
            self.end()
        else:
            self._after("idle", left, self._check_idleness)

    # A client that does not read

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_the_reader()

    def _watch_the_reader(self) -> None:
        if "write" not in self._timers:
            unread = self.transport.get_write_buffer_size()
            self._after("write", self._patience.silent_seconds, lambda: self._check_the_reader(unread))

    def _check_the_reader(self, unread: int) -> None:
        """What is less than a full buffer may wait to be read, unless the connection is to end."""
        left = self.transport.get_write_buffer_size()
        if not left or not (self.flow.write_paused or "end" in self._timers or self.transport.is_closing()):
            return
        if unread - left < self._patience.least_bytes:
            self.transport.abort()
        else:
            self._watch_the_reader()

    def _after(self, name: str, seconds: float, act: Callable[[], None]) -> None:
        def due() -> None:
            if name != "end":
                del self._timers[name]
            act()

        self._cancel(name)
        self._timers[name] = self.loop.call_later(seconds, due)

    def _cancel(self, name: str) -> None:
        timer = self._timers.pop(name, None) if self._timers else None
        if timer is not None:
            timer.cancel()

    def _cancel_all(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
