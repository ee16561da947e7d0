"""Uploads as a client makes them: create a photo, post its form to the returned address, complete it."""

from collections.abc import Mapping
from io import BytesIO
from typing import Any

import aiohttp
from PIL import Image

from datastore.keyspace.photos import users as user_keys
from datastore.model.access_patterns import consistently
from datastore.objects import UploadTarget
from tests.support.photo_items import ADA, ask_as
from tests.support.served import Answer, Served

TARGET = "{ url method fields { name value } fileField contentType maxBytes expiresAt }"
CREATE = f"""mutation($input: CreatePhotoInput!) {{ createPhoto(input: $input) {{
    imageId expiresAt original {TARGET} thumbnail {TARGET} }} }}"""
COMPLETE = """mutation($id: ID!) { completePhoto(id: $id) {
    imageId takenAt createdAt description tags contentType size width height email personIds originalUrl thumbnailUrl
} }"""
CANCEL = "mutation($id: ID!) { cancelPhotoUpload(id: $id) }"
COLORS = {"red": (255, 0, 0), "blue": (0, 0, 255)}


async def create_photo(served: Served, email: str | None = ADA, **given: Any) -> Answer:
    answer: Answer = await ask_as(served, CREATE, email, input={"contentType": "image/jpeg"} | given)
    return answer


async def complete_photo(served: Served, image_id: str, email: str | None = ADA) -> Answer:
    answer: Answer = await ask_as(served, COMPLETE, email, id=image_id)
    return answer


async def cancel(served: Served, image_id: str, email: str | None = ADA) -> Answer:
    answer: Answer = await ask_as(served, CANCEL, email, id=image_id)
    return answer


async def upload_count(served: Served, email: str = ADA) -> Any:
    item = await served.store().get(consistently(user_keys.PHOTO_USER), user_keys.user(email))
    return item and item.get("uploadCount")


def form_of(fields: Mapping[str, str], content: bytes, content_type: str) -> aiohttp.FormData:
    form = aiohttp.FormData()
    for name, value in fields.items():
        form.add_field(name, value)
    form.add_field("file", content, filename="picture", content_type=content_type)
    return form


async def post_form(http: aiohttp.ClientSession, target: Mapping[str, Any], content: bytes) -> int:
    """Upload to a target of the API. Return the status."""
    fields = {field["name"]: field["value"] for field in target["fields"]}
    async with http.post(target["url"], data=form_of(fields, content, target["contentType"])) as response:
        return response.status


async def send_to(http: aiohttp.ClientSession, target: UploadTarget, content: bytes) -> int:
    """Upload to a target of an object store. Return the status."""
    async with http.post(target.url, data=form_of(target.fields, content, target.content_type)) as response:
        return response.status


def size_and_color(content: bytes) -> tuple[tuple[int, int], str]:
    """Return the size of a picture and the most similar of `COLORS`."""
    image = Image.open(BytesIO(content))
    pixel = image.convert("RGB").getpixel((0, 0))
    assert isinstance(pixel, tuple)
    nearest = min(COLORS, key=lambda name: sum(abs(a - b) for a, b in zip(COLORS[name], pixel, strict=True)))
    return image.size, nearest
