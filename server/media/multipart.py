"""The form that an upload is: a token, then a file; read as it arrives, nothing of it kept in memory."""

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from datastore.errors import BadUserInput
from datastore.objects import FILE_FIELD

TOKEN_FIELD = "token"
LONGEST_TOKEN = 4096
MOST_CONTENT_TYPE_CHARACTERS = 256
# RFC 2046, 5.1.1.
BOUNDARY = re.compile(rb"[0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-]")
# What a form may have around its file: the token, boundaries and headers.
MOST_AROUND = 16_384
# The parser warns of each form that is malformed, which anybody may send any number of: the answer says so.
logging.getLogger("python_multipart").setLevel(logging.CRITICAL)


@dataclass(frozen=True, slots=True)
class Opening:
    """What a form says in front of its file: the token, and the file's Content-Type."""

    token: str
    content_type: str


class UploadForm:
    """Feed it the body piece by piece. Raises `BadUserInput` for what is no such form.

    When a piece leads up to the file, there is an `opening`: before the next piece is fed, say with `write_to` what the
    file is to be written to. What the piece holds of the file is kept until then.
    """

    def __init__(self, content_type: str) -> None:
        # To read a parameter takes microseconds, and a form has one.
        is_read = len(content_type) <= MOST_CONTENT_TYPE_CHARACTERS
        media, options = parse_options_header(content_type if is_read else "")
        boundary = options.get(b"boundary", b"")
        if media != b"multipart/form-data" or not BOUNDARY.fullmatch(boundary):
            raise BadUserInput(
                "The body must be sent as Content-Type: multipart/form-data, with a boundary, "
                f"in at most {MOST_CONTENT_TYPE_CHARACTERS} characters."
            )
        self.opening: Opening | None = None
        self._write: Callable[[bytes], None] | None = None
        self._begun = bytearray()
        self._fed = 0
        self._token = bytearray()
        self._part: str | None = None
        self._done: list[str] = []
        self._ended = False
        self._header = (bytearray(), bytearray())
        self._headers: dict[bytes, bytes] = {}
        try:
            self._parser = MultipartParser(boundary, self._callbacks())
        except FormParserError as problem:
            raise _no_form() from problem

    def _callbacks(self) -> Any:
        return {
            "on_part_begin": self._part_begins,
            "on_header_field": lambda data, start, end: self._header[0].extend(data[start:end]),
            "on_header_value": lambda data, start, end: self._header[1].extend(data[start:end]),
            "on_header_end": self._header_ends,
            "on_headers_finished": self._part_is_known,
            "on_part_data": lambda data, start, end: self._take(data[start:end]),
            "on_part_end": self._part_ends,
            "on_end": self._ends,
        }

    def feed(self, content: bytes) -> None:
        assert self.opening is None, "It is not said yet what the file is written to."
        try:
            self._parser.write(content)
        except FormParserError as problem:
            raise _no_form() from problem
        self._fed += len(content)
        if self._fed > MOST_AROUND and self.opening is None and self._write is None:
            raise BadUserInput(f"The form must come to its file within {MOST_AROUND:,} bytes.")

    def write_to(self, write: Callable[[bytes], None]) -> None:
        """Write the file there from now on. Raises what `write` raises."""
        self.opening, self._write = None, write
        begun, self._begun = bytes(self._begun), bytearray()
        write(begun)

    def end(self) -> None:
        """The body is over. Raises `BadUserInput` unless the form is whole."""
        if not self._ended or self._done != [TOKEN_FIELD, FILE_FIELD]:
            raise BadUserInput("The form is not whole: it breaks off, or lacks the file.")

    def _part_begins(self) -> None:
        self._headers = {}

    def _header_ends(self) -> None:
        field, value = self._header
        self._headers[bytes(field).lower()] = bytes(value)
        self._header = (bytearray(), bytearray())

    def _part_is_known(self) -> None:
        name = parse_options_header(self._headers.get(b"content-disposition", b""))[1].get(b"name", b"")
        self._part = name.decode("latin-1")
        if [*self._done, self._part] not in ([TOKEN_FIELD], [TOKEN_FIELD, FILE_FIELD]):
            raise BadUserInput(f"The form must have the field `{TOKEN_FIELD}` and then `{FILE_FIELD}`, and no other.")
        if self._part == FILE_FIELD:
            media = parse_options_header(self._headers.get(b"content-type", b""))[0]
            self.opening = Opening(self._token.decode("latin-1"), media.decode("latin-1"))

    def _take(self, content: bytes) -> None:
        if self._write is not None:
            self._write(content)
            return
        if self.opening is not None:
            self._begun += content
            return
        self._token += content
        if len(self._token) > LONGEST_TOKEN:
            raise BadUserInput(f"`{TOKEN_FIELD}` is longer than any.")

    def _part_ends(self) -> None:
        self._done.append(self._part or "")

    def _ends(self) -> None:
        self._ended = True


def _no_form() -> BadUserInput:
    return BadUserInput("The body is no form (multipart/form-data) that can be read.")
