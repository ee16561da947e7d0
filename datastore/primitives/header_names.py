"""The names of HTTP headers in lower case."""

from typing import Final

MAX_NAMES, MAX_NAME_BYTES = 256, 64


class HeaderNames(dict[bytes, bytes]):
    """The names of headers in lower case, by their spelling.

    The first `MAX_NAMES` spellings are kept: peers send the same ones in each message.
    """

    def __missing__(self, name: bytes) -> bytes:
        lower = name.lower()
        if len(self) < MAX_NAMES and len(name) <= MAX_NAME_BYTES:
            self[name] = lower
        return lower


LOWER_CASE: Final = HeaderNames()
