"""The table `sparks` of the photo library.

| item | PK | SK | in the indexes by |
|---|---|---|---|
| user | `USER#<email>` | `USER#<email>` | type, email |
| photo | `IMAGE#<id>` | `IMAGE#<takenAt>` | type, email |
| person | `PERSON#<id>` | `PERSON#<name>` | type, person |
| face | `FACE#<id>` | `IMAGE#<imageId>` | type, person |
| event | `EVENT#<id>` | `EVENT#<at>` | type, email |
| livestream | `LIVESTREAM#<id>` | `LIVESTREAM#<time of the id>` | type |
| upload reservation | `UPLOAD#<imageId>` | `UPLOAD#<imageId>` | type, email |
| outbox entry of files to delete | `REMOVAL#<imageId>` | `REMOVAL#<imageId>` | type |

Every index has `PK` as its sort key, and ids are UUIDs of version 7, so that key order is time order. The projections
hold the attributes that lists show and that are not in the key. The indexes by type and email hold neither `eventData`
nor the bounding boxes of faces. DynamoDB projects at most 20 attributes, so a photo's `file` is a map of `contentType`,
`size` (bytes), `width` and `height` (pixels), and a person's name is read from the key.
"""

from typing import Final

from datastore.items.keys import KeyParts, item_key
from datastore.model.access_patterns import Index, Table

BY_TYPE: Final = "entityType-PK-index"
BY_EMAIL: Final = "email-PK-index"
BY_PERSON: Final = "personId-PK-index"

PHOTO_ATTRIBUTES = (
    *("originalKey", "thumbnailKey", "description", "tags", "persons", "personNames", "faces", "file"),
    *("createdAt", "version"),
)

SPARKS = Table(
    name="sparks",
    partition="PK",
    sort="SK",
    indexes=(
        Index(BY_EMAIL, partition="email", sort="PK", projection=PHOTO_ATTRIBUTES),
        Index(
            BY_TYPE,
            partition="entityType",
            sort="PK",
            projection=(
                *PHOTO_ATTRIBUTES,
                *("email", "displayName", "uploadLimit", "uploadCount", "faceCount"),
                *("thumbnailUrl", "streamUrl", "title", "startTime", "endTime"),
            ),
        ),
        Index(
            BY_PERSON,
            partition="personId",
            sort="PK",
            projection=("imageId", "photoSK", "confidence", "boundingBox", "createdAt"),
        ),
    ),
    stream="NEW_AND_OLD_IMAGES",
    index_copies=2,
)


@item_key(SPARKS, index=BY_TYPE)
def of_type(entity_type: str, partition: str) -> KeyParts:
    """`partition` is the partition of the item in the table."""
    return (entity_type,), (partition,)
