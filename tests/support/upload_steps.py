"""Steps of tests of uploads: what is reserved and uploaded, and what is there of it."""

import re
from typing import Any

from datastore.keyspace.photos import uploads as keys
from pipelines.photos.janitor import Janitor
from tests.support.photo_items import ADA
from tests.support.served import Served
from tests.support.upload_forms import create, send


async def reserved(served: Served, email: str = ADA, **given: Any) -> dict[str, Any]:
    answer = await create(served, email, **given)
    assert answer.errors is None, answer.errors
    upload: dict[str, Any] = answer.data["createPhoto"]
    return upload


async def uploaded(served: Served, content: bytes, **given: Any) -> str:
    """The id of a reservation whose original is uploaded."""
    upload = await reserved(served, **given)
    assert await send(served.http, upload["original"], content) == 204
    image_id: str = upload["imageId"]
    return image_id


async def items(served: Served, kind: str) -> list[dict[str, Any]]:
    """What there is of a kind, as the index by type has it."""
    return [item async for item in served.store().query_all(keys.RESERVATIONS, {"partition": kind})]


def files(served: Served) -> set[str]:
    folder = served.gateway.objects.folder  # type: ignore[attr-defined]
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def shown(served: Served) -> set[str]:
    """The same without what the names of a photo's files say of their content."""
    return {re.sub("-[0-9a-f]{16}[.]", ".", name) for name in files(served)}


def janitor(served: Served) -> Janitor:
    return Janitor(served.store, served.gateway.objects, now=served.clock)
