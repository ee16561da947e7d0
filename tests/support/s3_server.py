"""A small S3 over HTTP with path-style addresses, which checks signatures as AWS does.

https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-authenticating-requests.html
"""

import asyncio
import base64
import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any
from urllib.parse import quote, unquote

from aiohttp import web

ACCESS_KEY, SECRET_KEY, BUCKET, REGION = "AKIDEXAMPLE", "a secret of the bucket's", "photos", "eu-central-1"
ALGORITHM = "AWS4-HMAC-SHA256"
MOST_SKEW = timedelta(minutes=15)
# A presigned URL is not valid before its date, which is in whole seconds.
ROUNDING = timedelta(seconds=1)
# Fields that a form may have without a condition in its policy.
FREE_FIELDS = {"policy", "x-amz-signature", "file"}
STATUSES = {"NoSuchKey": 404, "NoSuchBucket": 404, "EntityTooLarge": 400, "EntityTooSmall": 400, "SlowDown": 503}


class S3Refusal(Exception):
    """An error; `code` is S3's code."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class S3Server:
    """A bucket: `objects` holds content and type by key.

    `later` is how far its clock is ahead. `fault` replaces the response, and with `stuck` there is no response.
    """

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, str]] = {}
        self.requests: list[str] = []
        self.later = timedelta()
        self.fault: str | None = None
        self.stuck = False
        self.url = ""

    async def __aenter__(self) -> "S3Server":
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        response = await self._answered(request)
        response.headers["Date"] = format_datetime(self._now(), usegmt=True)
        return response

    async def _answered(self, request: web.Request) -> web.Response:
        bucket, _, key = unquote(request.path.removeprefix("/")).partition("/")
        self.requests.append(f"{request.method} {key}")
        if self.stuck:
            await asyncio.sleep(60)
        try:
            if self.fault:
                raise S3Refusal(self.fault)
            if bucket != BUCKET:
                raise S3Refusal("NoSuchBucket")
            return await (self._take_form(request) if request.method == "POST" else self._serve(request, key))
        except S3Refusal as refusal:
            body = f"<?xml version='1.0'?><Error><Code>{refusal.code}</Code><Message>inside</Message></Error>"
            return web.Response(status=STATUSES.get(refusal.code, 403), text=body, content_type="application/xml")

    async def _serve(self, request: web.Request, key: str) -> web.Response:
        body = await request.read()
        self._check_signature(request, body)
        if request.method == "PUT":
            self.objects[key] = (body, request.content_type)
            return web.Response()
        if request.method == "DELETE":
            self.objects.pop(key, None)
            return web.Response(status=204)
        if key not in self.objects:
            raise S3Refusal("NoSuchKey")
        content, content_type = self.objects[key]
        return web.Response(body=content, content_type=content_type)

    def _now(self) -> datetime:
        return datetime.now(UTC) + self.later

    def _check_signature(self, request: web.Request, body: bytes) -> None:
        if "X-Amz-Signature" in request.query:
            given = {name.removeprefix("X-Amz-"): value for name, value in request.query.items()}
            self._check_age(given["Date"], ROUNDING, timedelta(seconds=int(given["Expires"])), "AccessDenied")
            payload = "UNSIGNED-PAYLOAD"
        else:
            header = request.headers.get("Authorization", "")
            if not header.startswith(ALGORITHM):
                raise S3Refusal("AccessDenied")
            given = dict(re.findall(r"(\w+)=([^, ]+)", header)) | {"Date": request.headers["X-Amz-Date"]}
            self._check_age(given["Date"], MOST_SKEW, MOST_SKEW, "RequestTimeTooSkewed")
            payload = request.headers["X-Amz-Content-SHA256"]
            if payload not in ("UNSIGNED-PAYLOAD", hashlib.sha256(body).hexdigest()):
                raise S3Refusal("XAmzContentSHA256Mismatch")
        canonical = _canonical(request, given["SignedHeaders"], payload)
        scope = given["Credential"].partition("/")[2]
        text = "\n".join([ALGORITHM, given["Date"], scope, hashlib.sha256(canonical.encode()).hexdigest()])
        _check(given["Signature"], given["Credential"], given["Date"], text)

    def _check_age(self, date: str, early: timedelta, late: timedelta, code: str) -> None:
        age = self._now() - _moment(date)
        if not -early <= age <= late:
            raise S3Refusal(code)

    async def _take_form(self, request: web.Request) -> web.Response:
        fields: dict[str, str] = {}
        content = b""
        async for part in await request.multipart():
            if part.name == "file":  # type: ignore[union-attr]
                content = await part.read()  # type: ignore[union-attr]
                break  # fields after the file are ignored
            fields[str(part.name).lower()] = await part.text()  # type: ignore[union-attr]
        if not fields.get("policy"):
            raise S3Refusal("AccessDenied")
        _check(fields["x-amz-signature"], fields["x-amz-credential"], fields["x-amz-date"], fields["policy"])
        self._check_policy(json.loads(base64.b64decode(fields["policy"])), fields, len(content))
        self.objects[fields["key"]] = (content, fields.get("content-type", "binary/octet-stream"))
        return web.Response(status=204)

    def _check_policy(self, policy: Mapping[str, Any], fields: Mapping[str, str], length: int) -> None:
        if self._now() >= datetime.fromisoformat(policy["expiration"]):
            raise S3Refusal("AccessDenied")
        self._check_age(fields["x-amz-date"], ROUNDING, timedelta.max, "AccessDenied")
        received = set()
        for condition in policy["conditions"]:
            if isinstance(condition, list) and condition[0] == "content-length-range":
                if length < condition[1]:
                    raise S3Refusal("EntityTooSmall")
                if length > condition[2]:
                    raise S3Refusal("EntityTooLarge")
                continue
            received.add(_hold(condition, {"bucket": BUCKET, **fields}))
        if not fields.keys() - FREE_FIELDS <= received:
            raise S3Refusal("AccessDenied")


def _moment(date: str) -> datetime:
    return datetime.strptime(date, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)


def _hold(condition: Any, fields: Mapping[str, str]) -> str:
    """Return the field of a condition. Raises `S3Refusal` if the condition does not hold."""
    if isinstance(condition, dict):
        ((name, wanted),) = condition.items()
        matches = "eq"
    else:
        matches, name, wanted = condition[0], condition[1].removeprefix("$"), condition[2]
    value = fields.get(name.lower(), "")
    if not (value == wanted if matches == "eq" else value.startswith(wanted)):
        raise S3Refusal("AccessDenied")
    return str(name).lower()


def _canonical(request: web.Request, signed: str, payload: str) -> str:
    pairs = sorted(
        (quote(name, safe="-_.~"), quote(value, safe="-_.~"))
        for name, value in request.query.items()
        if name != "X-Amz-Signature"
    )
    if "host" not in signed.split(";"):
        raise S3Refusal("AccessDenied")
    return "\n".join(
        [
            request.method,
            quote(unquote(request.raw_path.partition("?")[0]), safe="/-_.~"),
            "&".join(f"{name}={value}" for name, value in pairs),
            *[f"{name}:{' '.join(request.headers[name].split())}" for name in signed.split(";")],
            "",
            signed,
            payload,
        ]
    )


def _check(signature: str, credential: str, date: str, text: str) -> None:
    access_key, day, region, service, end = credential.split("/")
    if (access_key, region, service, end) != (ACCESS_KEY, REGION, "s3", "aws4_request"):
        raise S3Refusal("InvalidAccessKeyId")
    key = f"AWS4{SECRET_KEY}".encode()
    for part in (day, region, service, end):
        key = hmac.digest(key, part.encode(), "sha256")
    right = hmac.digest(key, text.encode(), "sha256").hex()
    if day != date[:8] or not hmac.compare_digest(signature, right):
        raise S3Refusal("SignatureDoesNotMatch")
