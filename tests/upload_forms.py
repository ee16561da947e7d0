"""Uploading as a browser does it: a form to the address that `createPhoto` answered."""

from collections.abc import Mapping
from io import BytesIO
from typing import Any

import aiohttp
from PIL import Image

from datastore.objects import UploadTarget

COLORS = {"red": (255, 0, 0), "blue": (0, 0, 255)}


def form_of(fields: Mapping[str, str], content: bytes, content_type: str) -> aiohttp.FormData:
    form = aiohttp.FormData()
    for name, value in fields.items():
        form.add_field(name, value)
    form.add_field("file", content, filename="picture", content_type=content_type)
    return form


async def send(http: aiohttp.ClientSession, target: Mapping[str, Any], content: bytes) -> int:
    """The status that an upload to the API's target is answered with."""
    fields = {field["name"]: field["value"] for field in target["fields"]}
    async with http.post(target["url"], data=form_of(fields, content, target["contentType"])) as response:
        return response.status


async def send_to(http: aiohttp.ClientSession, target: UploadTarget, content: bytes) -> int:
    """The same with the target of an object store."""
    async with http.post(target.url, data=form_of(target.fields, content, target.content_type)) as response:
        return response.status


def sent(content: bytes) -> tuple[tuple[int, int], str]:
    """How large a picture is, and which of `COLORS` it is about."""
    image = Image.open(BytesIO(content))
    pixel = image.convert("RGB").getpixel((0, 0))
    assert isinstance(pixel, tuple)
    nearest = min(COLORS, key=lambda name: sum(abs(a - b) for a, b in zip(COLORS[name], pixel, strict=True)))
    return image.size, nearest
