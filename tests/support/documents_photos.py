"""The documented items of the photo library, written by another program."""

from collections.abc import Mapping
from typing import Any

from datastore.dynamodb.codec import encode_item
from datastore.keyspace.photos.table import SPARKS
from tests.support.boto_client import boto_client
from tests.support.served import Served

EMAIL = "email@example.com"
AT = "2023-01-01T00:00:00Z"
THEIR_BOX = {"left": 0.1, "top": 0.1, "width": 0.2, "height": 0.2}
UUID = "9f1c2d3e-0000-4000-8000-00000000000{}"
PHOTO, PERSON, OTHER, FACE, EVENT, STREAM = [UUID.format(number) for number in range(6)]
DOCUMENT: list[dict[str, Any]] = [
    {
        "PK": f"USER#{EMAIL}",
        "SK": f"USER#{EMAIL}",
        "entityType": "USER",
        "email": EMAIL,
        "displayName": "User Name",
        "uploadLimit": 100,
        "createdAt": AT,
    },
    {
        "PK": f"IMAGE#{PHOTO}",
        "SK": f"IMAGE#{AT}",
        "entityType": "IMAGE",
        "email": EMAIL,
        "imageId": PHOTO,
        "originalKey": f"originals/{EMAIL}/{PHOTO}.jpg",
        "thumbnailKey": f"thumbnails/{EMAIL}/{PHOTO}.jpg",
        "description": "Photo description",
        "tags": ["tag1", "tag2"],
        "persons": [PERSON, OTHER],
        "createdAt": AT,
    },
    *[
        {
            "PK": f"PERSON#{id}",
            "SK": f"PERSON#{name}",
            "entityType": "PERSON",
            "personId": id,
            "name": name,
            "faceCount": 1 if id == PERSON else 0,
            "thumbnailUrl": "https://example.com/thumbnail.jpg",
            "createdAt": AT,
        }
        for id, name in ((PERSON, "Person Name"), (OTHER, "Other Name"))
    ],
    {
        "PK": f"FACE#{FACE}",
        "SK": f"IMAGE#{PHOTO}",
        "entityType": "FACE",
        "personId": PERSON,
        "imageId": PHOTO,
        "confidence": 0.98,
        "boundingBox": THEIR_BOX,
        "createdAt": AT,
    },
    {
        "PK": f"EVENT#{EVENT}",
        "SK": f"EVENT#{AT}",
        "entityType": "EVENT",
        "eventType": "PHOTO_VIEW",
        "eventData": {"imageId": PHOTO},
        "email": EMAIL,
        "createdAt": AT,
    },
    {
        "PK": f"LIVESTREAM#{STREAM}",
        "SK": f"LIVESTREAM#{AT}",
        "entityType": "LIVESTREAM",
        "streamUrl": "https://example.com/stream",
        "title": "Live Stream Title",
        "description": "Live Stream Description",
        "startTime": AT,
        "endTime": "2023-01-01T01:00:00Z",
        "createdAt": AT,
    },
]


def write_library_items(served: Served, *items: Mapping[str, Any]) -> None:
    """Write items of the photo library with boto3, as another program does."""
    assert served.gateway.database is not None
    client, name = boto_client(served.gateway.database), served.gateway.database.prefix + SPARKS.name
    for item in items:
        client.put_item(TableName=name, Item=encode_item(item))
