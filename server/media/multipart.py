"""The form of an upload: a token, then a file. It is parsed as it arrives, and the file is not held in memory."""

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
MAX_CONTENT_TYPE_CHARACTERS = 256
# RFC 2046, 5.1.1.
BOUNDARY = re.compile(rb"[0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-]")
# The limit of a form without its file: the token, boundaries and headers.
MAX_FORM_OVERHEAD = 16_384
# The parser logs a warning for each malformed form. Any client can send those without limit; the response suffices.
logging.getLogger("python_multipart").setLevel(logging.CRITICAL)


@dataclass(frozen=True, slots=True)
class Opening:
    """The part of a form before the content of its file: the token, and the Content-Type of the file."""

    token: str
    content_type: str


class UploadForm:
    """An incremental parser of the form. Raises `BadUserInput` for any other body.

    The caller feeds it the body in pieces. When a piece reaches the file, `opening` is set: before the next piece the
    caller must call `write_to` with the destination of the file. The beginning of the file is buffered until then.
    """

    def __init__(self, content_type: str) -> None:
        # A form has one parameter, and parsing each takes microseconds: a longer header is not parsed.
        is_parsed = len(content_type) <= MAX_CONTENT_TYPE_CHARACTERS
        media, options = parse_options_header(content_type if is_parsed else "")
        boundary = options.get(b"boundary", b"")
        if media != b"multipart/form-data" or not BOUNDARY.fullmatch(boundary):
            raise BadUserInput(
                "The body must be sent as Content-Type: multipart/form-data, with a boundary, "
                f"in at most {MAX_CONTENT_TYPE_CHARACTERS} characters."
            )
        self.opening: Opening | None = None
        self._write: Callable[[bytes], None] | None = None
        self._beginning = bytearray()
        self._fed = 0
        self._token = bytearray()
        self._part: str | None = None  # the name of the field that is being read
        self._done: list[str] = []
        self._ended = False
        self._header = (bytearray(), bytearray())
        self._headers: dict[bytes, bytes] = {}
        try:
            self._parser = MultipartParser(boundary, self._callbacks())
        except FormParserError as problem:
            raise _malformed() from problem

    def _callbacks(self) -> Any:
        return {
            "on_part_begin": self._on_part_begin,
            "on_header_field": lambda data, start, end: self._header[0].extend(data[start:end]),
            "on_header_value": lambda data, start, end: self._header[1].extend(data[start:end]),
            "on_header_end": self._on_header_end,
            "on_headers_finished": self._on_headers_finished,
            "on_part_data": lambda data, start, end: self._on_part_data(data[start:end]),
            "on_part_end": self._on_part_end,
            "on_end": self._on_end,
        }

    def feed(self, content: bytes) -> None:
        """Parse the next piece of the body. Raises `BadUserInput`, and the errors of the file's `write`."""
        assert self.opening is None, "write_to() must be called before the next piece."
        try:
            self._parser.write(content)
        except FormParserError as problem:
            raise _malformed() from problem
        self._fed += len(content)
        if self._fed > MAX_FORM_OVERHEAD and self.opening is None and self._write is None:
            raise BadUserInput(f"The file must begin within the first {MAX_FORM_OVERHEAD:,} bytes of the form.")

    def write_to(self, write: Callable[[bytes], None]) -> None:
        """Set the destination of the file, and write its buffered beginning. Raises the errors of `write`."""
        self.opening, self._write = None, write
        beginning, self._beginning = bytes(self._beginning), bytearray()
        write(beginning)

    def end(self) -> None:
        """Check the end of the body. Raise `BadUserInput` if the form is incomplete."""
        if not self._ended or self._done != [TOKEN_FIELD, FILE_FIELD]:
            raise BadUserInput("The form is incomplete: it ends early, or has no file.")

    def _on_part_begin(self) -> None:
        self._headers = {}

    def _on_header_end(self) -> None:
        field, value = self._header
        self._headers[bytes(field).lower()] = bytes(value)
        self._header = (bytearray(), bytearray())

    def _on_headers_finished(self) -> None:
        name = parse_options_header(self._headers.get(b"content-disposition", b""))[1].get(b"name", b"")
        self._part = name.decode("latin-1")
        if [*self._done, self._part] not in ([TOKEN_FIELD], [TOKEN_FIELD, FILE_FIELD]):
            raise BadUserInput(f"The form must have the field `{TOKEN_FIELD}` and then `{FILE_FIELD}`, and no other.")
        if self._part == FILE_FIELD:
            media = parse_options_header(self._headers.get(b"content-type", b""))[0]
            self.opening = Opening(self._token.decode("latin-1"), media.decode("latin-1"))

    def _on_part_data(self, content: bytes) -> None:
        if self._write is not None:
            self._write(content)
            return
        if self.opening is not None:
            self._beginning += content
            return
        self._token += content
        if len(self._token) > LONGEST_TOKEN:
            raise BadUserInput(f"`{TOKEN_FIELD}` may have at most {LONGEST_TOKEN:,} bytes.")

    def _on_part_end(self) -> None:
        self._done.append(self._part or "")

    def _on_end(self) -> None:
        self._ended = True


def _malformed() -> BadUserInput:
    return BadUserInput("The body is not a well-formed form (multipart/form-data).")
