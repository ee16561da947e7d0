"""The table `sparks`: photos, the people in them, those who took them, and what the photo library tells of itself.

| item | PK | SK | in the indexes by |
|---|---|---|---|
| user | `USER#<email>` | `USER#<email>` | type, email |
| photo | `IMAGE#<id>` | `IMAGE#<takenAt>` | type, email |
| person | `PERSON#<id>` | `PERSON#<name>` | type, person |
| face | `FACE#<id>` | `IMAGE#<imageId>` | type, person |
| event | `EVENT#<id>` | `EVENT#<at>` | type, email |
| livestream | `LIVESTREAM#<id>` | `LIVESTREAM#<moment of the id>` | type |
| reservation of an upload | `UPLOAD#<imageId>` | `UPLOAD#<imageId>` | type, email |
| objects to remove | `REMOVAL#<imageId>` | `REMOVAL#<imageId>` | type |

Every index has `PK` as its sort key, and ids are UUIDs of version 7, so that the order of keys is that of time. The
projections hold what lists show, unless a key tells it: what events tell (`eventData`) and where faces are is in no
index by type or email. They take at most 20 attributes, so a photo's `file` is a map: `contentType`, `size` (bytes),
`width` and `height` (pixels), and a person's name is told by their key.
"""

from typing import Final

from datastore.model.access_patterns import Index, Table

BY_TYPE: Final = "entityType-PK-index"
BY_EMAIL: Final = "email-PK-index"
BY_PERSON: Final = "personId-PK-index"

PHOTO_ATTRIBUTES = (
    "originalKey",
    "thumbnailKey",
    "description",
    "tags",
    "persons",
    "personNames",
    "faces",
    "file",
    "createdAt",
    "version",
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
                "email",
                "displayName",
                "uploadLimit",
                "uploadCount",
                "faceCount",
                "thumbnailUrl",
                "streamUrl",
                "title",
                "startTime",
                "endTime",
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
    item_bytes=700,
    shown_in=2,
)
