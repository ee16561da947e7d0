"""Files of the local object store over HTTP: uploads by form to `/media`, and what is kept at `/media/<token>`.

The token is the permission: it is signed, names one file and expires. Clients cannot name files themselves.
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
from server.http.headers import MOST_CONDITION_CHARACTERS
from server.http.refusals import ClientGone, Refused
from server.media.multipart import MOST_AROUND, UploadForm
from server.media.upload_admission import Upload, UploadAdmission, refusal_of, too_large
from server.operations.outcome import encode, format_error, mask_error
from server.security.origins import canonical_origin, canonical_origins

MOST_BYTES = 25 * 2**20  # no token says more
SILENCE_SECONDS = 30.0
MOST_SECONDS = UPLOAD_LIFETIME.total_seconds()
PREFLIGHT_SECONDS = 600
TYPES = {".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".png": "image/png", ".webp": "image/webp"}
# Whatever a file holds, a browser takes it for a picture and for nothing that runs.
HARMLESS = {
    "Content-Security-Policy": "default-src 'none'; sandbox",
    # The signed URL is the permission to show the picture, as with a presigned URL of S3.
    "Cross-Origin-Resource-Policy": "cross-origin",
}
PART = re.compile("([0-9]{1,40})-([0-9]{1,40})?|-([0-9]{1,40})")


class Media:
    """The ASGI application behind `/media`. With another object store than the local one there is nothing here.

    `allowed_origins` are the pages on other hosts that may upload and read, as `https://host[:port]`. `admission`
    decides which uploads are taken.
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
        self._share(request, response)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        if self._objects is None:
            raise Refused(404, NotFound("Files are not kept by this gateway."))
        token = request.path_params.get("token")
        if token is None:
            return await self._upload(request, self._objects)
        if request.method == "OPTIONS":
            return Response(status_code=204, headers={"Allow": "GET, HEAD, OPTIONS"})
        if request.method not in ("GET", "HEAD"):
            raise Refused(405, BadUserInput("Files are read with GET and HEAD."), allow="GET, HEAD, OPTIONS")
        return await self._file(request, self._objects, token)

    def _share(self, request: Request, response: Response) -> None:
        """Let the page of an allowed origin read a file, and know what came of its upload.

        https://fetch.spec.whatwg.org/#http-cors-protocol
        """
        reads = "token" in request.path_params
        response.headers["Vary"] = "Origin"
        origin = request.headers.get("origin", "")
        if canonical_origin(origin) not in self._allowed_origins:
            return
        response.headers["Access-Control-Allow-Origin"] = origin
        if reads:
            response.headers["Access-Control-Expose-Headers"] = "Accept-Ranges, Content-Range, ETag"
        elif request.method != "OPTIONS":
            response.headers["Access-Control-Expose-Headers"] = "Retry-After"
        if request.method == "OPTIONS":
            response.headers["Access-Control-Allow-Methods"] = "GET, HEAD" if reads else "POST"
            response.headers["Access-Control-Allow-Headers"] = "If-None-Match, Range" if reads else "Content-Type"
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
                async with asyncio.timeout(MOST_SECONDS):
                    await self._read(request.receive, form, upload)
                await upload.keep()
            except TimeoutError:
                raise _late() from None
            except DomainError as problem:
                raise refusal_of(problem) from None
        return Response(status_code=204)

    async def _read(self, receive: Receive, form: UploadForm, upload: Upload) -> None:
        more = True
        while more:
            content, more = await self._piece(receive)
            form.feed(content)
            if form.opening is not None:
                form.write_to(await upload.begin(form.opening))
        form.end()

    async def _piece(self, receive: Receive) -> tuple[bytes, bool]:
        try:
            async with asyncio.timeout(self._silence):
                message = await receive()
        except TimeoutError:
            raise _late() from None
        if message["type"] == "http.disconnect":
            raise ClientGone
        return message.get("body", b""), message.get("more_body", False)

    async def _file(self, request: Request, objects: LocalObjects, token: str) -> Response:
        now = self._now()
        claims = objects.open_token(token, b"download", now)
        if claims is None:
            raise Refused(403, Forbidden("This address is not right, or has expired."))
        found = await asyncio.to_thread(_regular, objects, claims["key"])
        if found is None:
            raise Refused(404, NotFound("There is no such file."))
        path, status = found
        headers = HARMLESS | {"Cache-Control": f"private, max-age={claims['until'] - to_seconds(now)}"}
        media_type = TYPES.get(path.suffix, "application/octet-stream")
        response = FileResponse(path, headers=headers, media_type=media_type, stat_result=status)
        etag = response.headers["etag"]
        if _has(request.headers.get("if-none-match", ""), etag):
            return Response(status_code=304, headers=headers | {"ETag": etag})
        _check_range(request, response, status.st_size)
        return response


def _length(headers: Mapping[str, str]) -> int:
    declared = headers.get("content-length", "")
    if not (declared.isascii() and declared.isdigit()):
        raise Refused(411, BadUserInput("The form must be sent with its Content-Length."))
    if len(declared) > 18 or int(declared) > MOST_BYTES + MOST_AROUND:
        raise too_large(MOST_BYTES)
    return int(declared)


def _late() -> Refused:
    # Closed, so that neither the rest is waited for nor a socket held with a byte now and then.
    return Refused(408, Timeout("The file did not arrive in time."), connection="close")


def _regular(objects: LocalObjects, key: str) -> tuple[Path, os.stat_result] | None:
    """Where a file is, and what the disk tells of it; None where there is none."""
    try:
        path = objects.path(key)
        status = path.stat()
    except (BadUserInput, OSError):
        return None
    return (path, status) if stat.S_ISREG(status.st_mode) else None


def _has(tags: str, etag: str) -> bool:
    if len(tags) > MOST_CONDITION_CHARACTERS:
        return False
    return etag in [tag.strip().removeprefix("W/") for tag in tags.split(",")] or tags.strip() == "*"


def _check_range(request: Request, response: FileResponse, size: int) -> None:
    """Refuse parts that the file has not, and pass over what names no parts (RFC 9110, 14.2).

    `FileResponse` answers what is left.
    """
    given, given_if = request.headers.get("range"), request.headers.get("if-range")
    if given is None or given_if not in (None, response.headers["etag"], response.headers["last-modified"]):
        return
    here = _parts(given, size)
    if here and not any(here):
        missing = BadUserInput(f"The file has no such part: it has {size} bytes.")
        raise Refused(416, missing, **{"content-range": f"bytes */{size}"})
    if not all(here) or not here:
        request.scope["headers"] = [pair for pair in request.scope["headers"] if pair[0] != b"range"]


def _parts(given: str, size: int) -> list[bool]:
    """Of each part that a Range names, whether the file has any of it; nothing for what is no Range, or too long."""
    if len(given) > MOST_CONDITION_CHARACTERS:
        return []
    unit, _, named = given.partition("=")
    parts = [PART.fullmatch(part.strip(" \t")) for part in named.split(",")]
    if unit.lower() != "bytes":
        return []
    here = []
    for part in parts:
        if part is None:
            return []
        first, last, suffix = part.groups()
        if first and last and int(first) > int(last):
            return []
        here.append(int(first) < size if first else min(size, int(suffix)) > 0)
    return here


def _json(status: int, error: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Response:
    body = encode({"errors": [dict(error)]})
    return Response(body, status, HARMLESS | {"Cache-Control": "no-store"} | dict(headers or {}), "application/json")
