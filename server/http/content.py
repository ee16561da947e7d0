"""Content that clients may keep and that is sent compressed: the files of the page, and JSON that never changes.

https://www.rfc-editor.org/rfc/rfc9110#section-12.5.3 (Accept-Encoding)
"""

import gzip
import hashlib
import os
from collections.abc import Mapping
from functools import cached_property, lru_cache

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.staticfiles import NotModifiedResponse, PathLike, StaticFiles
from starlette.types import Scope

from server.http.headers import MAX_CONDITION_CHARACTERS

# The suffixes of compressed files by content coding, the smallest file first. The build writes these files.
CODINGS = {"br": ".br", "gzip": ".gz"}
# Browsers send some 30 characters. A longer header accepts no coding.
MAX_ACCEPT_ENCODING_CHARACTERS = 256
FOREVER = "public, max-age=31536000, immutable"
MAX_PATH_CHARACTERS = 256
# Smaller content fits in one packet whether it is compressed or not.
MIN_COMPRESSED_BYTES = 1024


def accepted_codings(headers: Mapping[str, str]) -> tuple[str, ...]:
    """Return those of `CODINGS` that a request accepts, in their order."""
    accepted = headers.get("accept-encoding", "")
    return _parse(accepted) if len(accepted) <= MAX_ACCEPT_ENCODING_CHARACTERS else ()


@lru_cache(maxsize=64)
def _parse(accepted: str) -> tuple[str, ...]:
    weights = {}
    for element in accepted.lower().split(","):
        coding, _, parameter = (part.strip() for part in element.partition(";"))
        name, _, weight = (part.strip() for part in parameter.partition("="))
        try:
            weights[coding] = float(weight) if name == "q" else 1.0
        except ValueError:
            continue
    anything = weights.get("*", 0.0)
    return tuple(coding for coding in CODINGS if weights.get(coding, anything) > 0)


class Content:
    """Bytes of a media type. They are compressed once, when a client first accepts that."""

    def __init__(self, body: bytes, media_type: str) -> None:
        self._body = body
        self._media_type = media_type
        self._hash = hashlib.sha256(body).hexdigest()[:32]

    @cached_property
    def _compressed(self) -> bytes:
        return gzip.compress(self._body, 9, mtime=0)

    def response(self, request: Request, headers: Mapping[str, str] | None = None) -> Response:
        """Return the content, or 304 if the client has it. The client asks again before each use."""
        compresses = len(self._body) >= MIN_COMPRESSED_BYTES and "gzip" in accepted_codings(request.headers)
        tag = f'"{self._hash}{"-gzip" if compresses else ""}"'
        headers = {"Cache-Control": "no-cache", "Vary": "Accept-Encoding", **(headers or {}), "ETag": tag}
        if names_tag(request.headers, tag):
            return Response(status_code=304, headers=headers)
        if compresses:
            return Response(
                self._compressed, headers=headers | {"Content-Encoding": "gzip"}, media_type=self._media_type
            )
        return Response(self._body, headers=headers, media_type=self._media_type)


def names_tag(headers: Mapping[str, str], tag: str) -> bool:
    """Return whether If-None-Match names the tag. It compares weak and strong tags alike."""
    condition = headers.get("if-none-match", "")
    if len(condition) > MAX_CONDITION_CHARACTERS:
        return False
    return condition.strip() == "*" or tag in [each.strip().removeprefix("W/") for each in condition.split(",")]


class Assets(StaticFiles):
    """Files whose names contain their hashes: they never change, and their names are their entity tags.

    A client gets the smallest file of a coding that it accepts, if the build has written one.
    """

    def get_path(self, scope: Scope) -> str:
        """Return the path of a file. Raise `HTTPException` if it is long: the lookup takes time for each segment."""
        if len(scope["path"]) > MAX_PATH_CHARACTERS:
            raise HTTPException(404)
        return super().get_path(scope)

    async def get_response(self, path: str, scope: Scope) -> Response:
        if path.endswith(tuple(CODINGS.values())):
            raise HTTPException(404)
        for coding in accepted_codings(Headers(scope=scope)):
            try:
                response = await super().get_response(path + CODINGS[coding], scope)
            except HTTPException as error:
                if error.status_code != 404:
                    raise
            else:
                response.headers["Content-Encoding"] = coding
                return response
        return await super().get_response(path, scope)

    def file_response(
        self, full_path: PathLike, stat_result: os.stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        response = FileResponse(full_path, status_code, stat_result=stat_result)
        response.headers["Cache-Control"] = FOREVER
        response.headers["Vary"] = "Accept-Encoding"
        response.headers["ETag"] = tag = f'"{os.path.basename(full_path)}"'
        return NotModifiedResponse(response.headers) if names_tag(Headers(scope=scope), tag) else response
