"""Steps of uploads, and the stored items and files."""

import re
from typing import Any

from datastore.keyspace.photos import uploads as keys
from pipelines.photos.janitor import Janitor
from tests.support.photo_items import ADA
from tests.support.served import Served
from tests.support.upload_forms import create_photo, post_form


async def reserved(served: Served, email: str = ADA, **given: Any) -> dict[str, Any]:
    answer = await create_photo(served, email, **given)
    assert answer.errors is None, answer.errors
    upload: dict[str, Any] = answer.data["createPhoto"]
    return upload


async def upload_original(served: Served, content: bytes, **given: Any) -> str:
    """Reserve a place and upload its original. Return the id."""
    upload = await reserved(served, **given)
    assert await post_form(served.http, upload["original"], content) == 204
    image_id: str = upload["imageId"]
    return image_id


async def items(served: Served, kind: str) -> list[dict[str, Any]]:
    """Return the items of a kind in the index by type."""
    return [item async for item in served.store().query_all(keys.RESERVATIONS, {"partition": kind})]


def files_of_gateway(served: Served) -> set[str]:
    folder = served.gateway.objects.folder  # type: ignore[attr-defined]
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def files_without_hashes(served: Served) -> set[str]:
    """Return the files without the hashes in their names."""
    return {re.sub("-[0-9a-f]{16}[.]", ".", name) for name in files_of_gateway(served)}


def janitor(served: Served) -> Janitor:
    return Janitor(served.store, served.gateway.objects, now=served.clock)
