"""Uploads: SPARKS-W1's `createPhoto` and `completePhoto`, through the API and the forms it names."""

from typing import Any

from conftest import Answer, Served
from photo_items import ADA, ask_as, put, user
from pictures import jpeg

from datastore.keyspace.photos import users as user_keys
from datastore.photos.uploads import incoming

TARGET = "{ url method fields { name value } fileField contentType maxBytes expiresAt }"
CREATE = f"""mutation($input: CreatePhotoInput!) {{ createPhoto(input: $input) {{
    imageId expiresAt original {TARGET} thumbnail {TARGET} }} }}"""
COMPLETE = """mutation($id: ID!) { completePhoto(imageId: $id) {
    imageId takenAt createdAt description tags contentType size width height email personIds originalUrl thumbnailUrl
} }"""
PHOTOS = "{ photos { nodes { imageId } } }"


async def create(served: Served, email: str | None = ADA, **given: Any) -> Answer:
    return await ask_as(served, CREATE, email, input={"contentType": "JPEG"} | given)


async def complete(served: Served, image_id: str, email: str | None = ADA) -> Answer:
    return await ask_as(served, COMPLETE, email, id=image_id)


async def reserved(served: Served, **given: Any) -> dict[str, Any]:
    answer = await create(served, **given)
    assert answer.errors is None, answer.errors
    return answer.data["createPhoto"]


async def count(served: Served, email: str = ADA) -> Any:
    item = await served.store().get(user_keys.PHOTO_USER_NOW, user_keys.user(email))
    return item and item.get("uploadCount")


async def test_a_photo_is_created_uploaded_and_completed(served: Served) -> None:
    await put(served, user(uploadCount=0))
    made = await create(served)
    image_id = made.data["createPhoto"]["imageId"]
    await served.gateway.objects.write(incoming(image_id)[0], jpeg(60, 40), content_type="image/jpeg")

    done = await complete(served, image_id)

    assert done.errors is None
    assert (made.made, done.made) == (
        ["TransactWriteItems sparks"],
        ["GetItem sparks", "Query sparks", "TransactWriteItems sparks"],
    )
