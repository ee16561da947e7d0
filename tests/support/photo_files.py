"""Pictures for tests of uploads, and an upload without a browser."""

import io
import json
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen
from uuid import uuid4

from PIL import Image

from tests.support.command_line import GatewayProcess

RESERVE = """mutation { createPhoto(input: { contentType: "image/jpeg", description: "Gone soon" }) {
  imageId original { url fields { name value } fileField contentType }
} }"""

COMPLETE = "mutation { completePhoto(id: %s) { imageId } }"


def picture(kind: str = "JPEG", colour: str = "teal") -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (600, 400), colour).save(file, kind)
    return file.getvalue()


def upload_photo(gateway: GatewayProcess, token: str) -> dict[str, Any]:
    """Upload a photo of the token's user, who has a profile in the library."""
    reserved = gateway.data(RESERVE, token)["createPhoto"]
    assert upload_blocking(reserved["original"]) < 300
    answer: dict[str, Any] = gateway.data(COMPLETE % json.dumps(reserved["imageId"]), token)["completePhoto"]
    return answer


def upload_blocking(target: dict[str, Any], content: bytes | None = None) -> int:
    """Upload a picture, or this content, to the target of a reservation. Return the status."""
    boundary = uuid4().hex
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{field["name"]}"\r\n\r\n{field["value"]}\r\n'
        for field in target["fields"]
    ]
    file = f'Content-Disposition: form-data; name="{target["fileField"]}"; filename="a.jpg"'
    parts.append(f"--{boundary}\r\n{file}\r\nContent-Type: {target['contentType']}\r\n\r\n")
    body = "".join(parts).encode() + (content or picture()) + f"\r\n--{boundary}--\r\n".encode()
    form = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
    try:
        with urlopen(Request(target["url"], body, form), timeout=20) as response:
            return int(response.status)
    except HTTPError as problem:
        with problem:
            return problem.code
