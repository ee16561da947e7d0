"""Files of the local object store over HTTP: uploads by form to `/media`, and downloads at `/media/<token>`.

The token is the permission: it is signed, names one file and expires. Clients cannot choose the names of files.
"""

import asyncio
import os
import re
import stat
from collections.abc import Callable, Collection, Mapping
from contextlib import AsyncExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.types import Receive, Scope, Send

from datastore.errors import BadUserInput, DomainError, Forbidden, NotFound, Timeout
from datastore.model.timestamps import to_seconds
from datastore.objects import UPLOAD_LIFETIME, ObjectStore
from datastore.objects.local import LocalObjects
from server.admission.client_address import address_in
from server.http.cycle import ClientGone
from server.http.headers import MAX_CONDITION_CHARACTERS
from server.http.responses import Refused
from server.media.multipart import MAX_FORM_OVERHEAD, UploadForm
from server.media.upload_admission import Upload, UploadAdmission, refusal_of, too_large
from server.operations.outcome import encode, format_error, mask_error
from server.security.origins import canonical_origin, canonical_origins

MAX_FILE_BYTES = 25 * 2**20  # the largest size in a token
SILENCE_SECONDS = 30.0
MAX_UPLOAD_SECONDS = UPLOAD_LIFETIME.total_seconds()
PREFLIGHT_SECONDS = 600
TYPES = {".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".png": "image/png", ".webp": "image/webp"}
# Browsers show a file as a picture and run no script in it, whatever it contains.
SAFE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; sandbox",
    # The signed URL is the permission to show the picture, as with a presigned URL of S3.
    "Cross-Origin-Resource-Policy": "cross-origin",
}
RANGE = re.compile("([0-9]{1,40})-([0-9]{1,40})?|-([0-9]{1,40})")


class Media:
    """The ASGI application behind `/media`. Unless the object store is the local one, it answers 404.

    Pages on `allowed_origins`, as `https://host[:port]`, may upload and download besides those of this host. An upload
    of which nothing arrives for `silence` seconds is refused.
    """

    def __init__(
        self,
        objects: ObjectStore,
        now: Callable[[], datetime],
        admission: UploadAdmission,
        *,
        allowed_origins: Collection[str] = (),
        silence: float = SILENCE_SECONDS,
    ) -> None:
        self._objects = objects if isinstance(objects, LocalObjects) else None
        self._now = now
        self._allowed_origins = canonical_origins(allowed_origins)
        self._silence = silence
        self._admission = admission

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response = await self._answer(request)
        except ClientGone:
            return
        except Refused as refusal:
            headers = {name.decode(): value.decode() for name, value in refusal.headers}
            response = _json(refusal.status, format_error(refusal.error), headers)
        except Exception as error:
            response = _json(500, mask_error(error))
        self._add_cors_headers(request, response)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        if self._objects is None:
            raise Refused(404, NotFound("This gateway does not store files."))
        token = request.path_params.get("token")
        if token is None:
            return await self._upload(request, self._objects)
        if request.method == "OPTIONS":
            return Response(status_code=204, headers={"Allow": "GET, HEAD, OPTIONS"})
        if request.method not in ("GET", "HEAD"):
            raise Refused(405, BadUserInput("Files are downloaded with GET and HEAD."), allow="GET, HEAD, OPTIONS")
        return await self._download(request, self._objects, token)

    def _add_cors_headers(self, request: Request, response: Response) -> None:
        """Add the CORS headers with which pages of an allowed origin read files and the responses to uploads.

        https://fetch.spec.whatwg.org/#http-cors-protocol
        """
        is_download = "token" in request.path_params
        response.headers["Vary"] = "Origin"
        origin = request.headers.get("origin", "")
        if canonical_origin(origin) not in self._allowed_origins:
            return
        response.headers["Access-Control-Allow-Origin"] = origin
        if is_download:
            response.headers["Access-Control-Expose-Headers"] = "Accept-Ranges, Content-Range, ETag"
        elif request.method != "OPTIONS":
            response.headers["Access-Control-Expose-Headers"] = "Retry-After"
        if request.method == "OPTIONS":
            response.headers["Access-Control-Allow-Methods"] = "GET, HEAD" if is_download else "POST"
            response.headers["Access-Control-Allow-Headers"] = "If-None-Match, Range" if is_download else "Content-Type"
            response.headers["Access-Control-Max-Age"] = str(PREFLIGHT_SECONDS)

    async def _upload(self, request: Request, objects: LocalObjects) -> Response:
        if request.method == "OPTIONS":
            return Response(status_code=204, headers={"Allow": "OPTIONS, POST"})
        if request.method != "POST":
            raise Refused(405, BadUserInput("Files are uploaded with POST."), allow="OPTIONS, POST")
        length = _length(request.headers)
        try:
            form = UploadForm(request.headers.get("content-type", ""))
        except BadUserInput as problem:
            raise Refused(415, problem) from None
        async with AsyncExitStack() as stack:
            upload = Upload(objects, self._admission, self._now(), length, address_in(request.scope), stack)
            try:
                async with asyncio.timeout(MAX_UPLOAD_SECONDS):
                    await self._read(request.receive, form, upload)
                await upload.keep()
            except TimeoutError:
                raise _too_slow() from None
            except DomainError as problem:
                raise refusal_of(problem) from None
        return Response(status_code=204)

    async def _read(self, receive: Receive, form: UploadForm, upload: Upload) -> None:
        more = True
        while more:
            content, more = await self._receive(receive)
            form.feed(content)
            if form.opening is not None:
                form.write_to(await upload.begin(form.opening))
        form.end()

    async def _receive(self, receive: Receive) -> tuple[bytes, bool]:
        try:
            async with asyncio.timeout(self._silence):
                message = await receive()
        except TimeoutError:
            raise _too_slow() from None
        if message["type"] == "http.disconnect":
            raise ClientGone
        return message.get("body", b""), message.get("more_body", False)

    async def _download(self, request: Request, objects: LocalObjects, token: str) -> Response:
        now = self._now()
        claims = objects.open_token(token, b"download", now)
        if claims is None:
            raise Refused(403, Forbidden("The address is invalid or has expired."))
        found = await asyncio.to_thread(_find_file, objects, claims["key"])
        if found is None:
            raise Refused(404, NotFound("There is no such file."))
        path, status = found
        headers = SAFE_HEADERS | {"Cache-Control": f"private, max-age={claims['until'] - to_seconds(now)}"}
        media_type = TYPES.get(path.suffix, "application/octet-stream")
        response = FileResponse(path, headers=headers, media_type=media_type, stat_result=status)
        etag = response.headers["etag"]
        if _matches(request.headers.get("if-none-match", ""), etag):
            return Response(status_code=304, headers=headers | {"ETag": etag})
        _check_range(request, response, status.st_size)
        return response


def _length(headers: Mapping[str, str]) -> int:
    """Return the Content-Length of a form. Raises `Refused`."""
    declared = headers.get("content-length", "")
    if not (declared.isascii() and declared.isdigit()):
        raise Refused(411, BadUserInput("The form must be sent with its Content-Length."))
    if len(declared) > 18 or int(declared) > MAX_FILE_BYTES + MAX_FORM_OVERHEAD:
        raise too_large(MAX_FILE_BYTES)
    return int(declared)


def _too_slow() -> Refused:
    # The connection closes: otherwise a client could hold it by sending a byte now and then.
    return Refused(408, Timeout("The file did not arrive in time."), connection="close")


def _find_file(objects: LocalObjects, key: str) -> tuple[Path, os.stat_result] | None:
    """Return the path of a regular file and its status; None if there is none."""
    try:
        path = objects.path(key)
        status = path.stat()
    except (BadUserInput, OSError):
        return None
    return (path, status) if stat.S_ISREG(status.st_mode) else None


def _matches(tags: str, etag: str) -> bool:
    """Return whether If-None-Match names the tag."""
    if len(tags) > MAX_CONDITION_CHARACTERS:
        return False
    return etag in [tag.strip().removeprefix("W/") for tag in tags.split(",")] or tags.strip() == "*"


def _check_range(request: Request, response: FileResponse, size: int) -> None:
    """Refuse a Range outside the file, and ignore an invalid or partly satisfiable one (RFC 9110, 14.2).

    `FileResponse` sends the other ranges.
    """
    ranges, if_range = request.headers.get("range"), request.headers.get("if-range")
    if ranges is None or if_range not in (None, response.headers["etag"], response.headers["last-modified"]):
        return
    satisfiable = _satisfiable(ranges, size)
    if satisfiable and not any(satisfiable):
        error = BadUserInput(f"The file has no such part: it has {size} bytes.")
        raise Refused(416, error, **{"content-range": f"bytes */{size}"})
    if not all(satisfiable) or not satisfiable:
        request.scope["headers"] = [pair for pair in request.scope["headers"] if pair[0] != b"range"]


def _satisfiable(header: str, size: int) -> list[bool]:
    """Return for each range whether the file has any of it. Return [] for an invalid header or one that is too long."""
    if len(header) > MAX_CONDITION_CHARACTERS:
        return []
    unit, _, ranges = header.partition("=")
    parts = [RANGE.fullmatch(part.strip(" \t")) for part in ranges.split(",")]
    if unit.lower() != "bytes":
        return []
    satisfiable = []
    for part in parts:
        if part is None:
            return []
        first, last, suffix = part.groups()
        if first and last and int(first) > int(last):
            return []
        satisfiable.append(int(first) < size if first else min(size, int(suffix)) > 0)
    return satisfiable


def _json(status: int, error: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Response:
    body = encode({"errors": [dict(error)]})
    return Response(
        body, status, SAFE_HEADERS | {"Cache-Control": "no-store"} | dict(headers or {}), "application/json"
    )
