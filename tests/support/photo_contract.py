"""The photo library's rows of the contract, and an operation for each of its fields (see test_contract)."""

import io

from PIL import Image

from datastore.model.access_patterns import Operation, Who
from datastore.model.identity import Role
from datastore.model.ids import uuid7
from tests.support.photo_items import ADA, face, livestream, person, photo, photo_user, put_library_items, tagged
from tests.support.served import NOON, Served

P1, P2 = person("p1", "Grace", faceCount=1), person("p2", "Alan")
F1 = face("f1", "i1", "p1")
I1 = tagged(photo("i1"), [F1], P1)
WAITING = uuid7(NOON, "waiting")

CONTRACT: list[tuple[str, str, set[Operation], Who]] = [
    ("SPARKS-1", "photoUser", {"GetItem", "BatchGetItem"}, Who.ANY),
    ("SPARKS-1", "photoUser", {"GetItem", "BatchGetItem"}, Who.USER),
    ("SPARKS-2", "photo", {"GetItem", "BatchGetItem", "Query"}, Who.ANY),
    ("SPARKS-3", "photos", {"Query"}, Who.ANY),
    ("SPARKS-4", "photoUsers", {"Query"}, Who.ADMIN),
    ("SPARKS-5", "photosByUser", {"Query"}, Who.ANY),
    ("SPARKS-6", "persons", {"Query"}, Who.ANY),
    # The faces, then their photos.
    ("SPARKS-7", "photosOfPerson", {"Query", "GetItem", "BatchGetItem"}, Who.ANY),
    ("SPARKS-8", "latestLivestream", {"Query"}, Who.ANY),
    ("SPARKS-8", "livestreams", {"Query"}, Who.ANY),
    ("SPARKS-N1", "person", {"GetItem", "BatchGetItem", "Query"}, Who.ANY),
    ("SPARKS-N3", "livestream", {"Query"}, Who.ANY),
    ("SPARKS-W1", "createPhotoUser", {"PutItem"}, Who.USER),
    ("SPARKS-W1", "updatePhotoUser", {"UpdateItem"}, Who.USER),
    # At the limit, expired reservations are found and released.
    (
        "SPARKS-W1",
        "createPhoto",
        {"GetItem", "BatchGetItem", "Query", "UpdateItem", "TransactWriteItems", "DeleteItem"},
        Who.USER,
    ),
    # The reservation is read first. It names the files before they are written.
    ("SPARKS-W1", "completePhoto", {"GetItem", "BatchGetItem", "Query", "UpdateItem", "TransactWriteItems"}, Who.USER),
    # The reservation and its photo are read first; the note of its files is deleted with them.
    (
        "SPARKS-W1",
        "cancelUpload",
        {"GetItem", "BatchGetItem", "Query", "TransactWriteItems", "DeleteItem"},
        Who.USER,
    ),
    ("SPARKS-W1", "updatePhoto", {"Query", "UpdateItem"}, Who.USER),
    # The photo and its faces are read first; the note of its files is deleted with them.
    (
        "SPARKS-W1",
        "deletePhoto",
        {"GetItem", "BatchGetItem", "Query", "TransactWriteItems", "DeleteItem"},
        Who.USER,
    ),
    # The photo and the person are read first.
    ("SPARKS-W1", "tagFace", {"GetItem", "BatchGetItem", "Query", "TransactWriteItems"}, Who.USER),
    ("SPARKS-W1", "untagFace", {"GetItem", "BatchGetItem", "Query", "TransactWriteItems"}, Who.USER),
    # With a given id: the query looks for one under another name.
    ("SPARKS-W1", "createPerson", {"Query", "PutItem", "TransactWriteItems"}, Who.ADMIN),
    # A new name is a new key: the item moves.
    ("SPARKS-W1", "updatePerson", {"Query", "UpdateItem", "TransactWriteItems"}, Who.ADMIN),
    ("SPARKS-W1", "mergePersons", {"GetItem", "BatchGetItem", "Query", "TransactWriteItems"}, Who.ADMIN),
    ("SPARKS-W1", "createLivestream", {"PutItem"}, Who.ADMIN),
    ("SPARKS-W1", "updateLivestream", {"Query", "UpdateItem"}, Who.ADMIN),
    ("SPARKS-W1", "endLivestream", {"Query", "UpdateItem"}, Who.ADMIN),
    ("SPARKS-W1", "logEvent", {"BatchWriteItem"}, Who.USER),
    # Livestreams begin and end without a write.
    ("SPARKS-S1", "livestreamChanged", {"Query"}, Who.ANY),
]
BY_TYPE = "Query sparks.entityType-PK-index"
ASK: dict[str, tuple[str, Role, list[str]]] = {
    "photoUser": ('{ photoUser(email: "ada@example.com") { displayName } }', Role.USER, ["GetItem sparks"]),
    "photo": ('{ photo(id: "i1", takenAt: "2023-01-01T00:00:00Z") { tags } }', Role.USER, ["GetItem sparks"]),
    "photos": ("{ photos { nodes { tags } } }", Role.USER, [BY_TYPE]),
    "photoUsers": ("{ photoUsers { nodes { email } } }", Role.ADMIN, [BY_TYPE]),
    "photosByUser": (
        '{ photosByUser(email: "ada@example.com") { nodes { tags } } }',
        Role.USER,
        ["Query sparks.email-PK-index"],
    ),
    "person": ('{ person(id: "p1") { name } }', Role.USER, ["Query sparks"]),
    "persons": ("{ persons { nodes { name } } }", Role.USER, [BY_TYPE]),
    "photosOfPerson": (
        '{ photosOfPerson(personId: "p1") { edges { node { tags } faces { confidence } } } }',
        Role.USER,
        ["GetItem sparks", "Query sparks.personId-PK-index"],
    ),
    "livestream": ('{ livestream(id: "l1") { title } }', Role.USER, ["Query sparks"]),
    "latestLivestream": ("{ latestLivestream { title state } }", Role.USER, [BY_TYPE]),
    "livestreams": ("{ livestreams { nodes { title } } }", Role.USER, [BY_TYPE]),
    "createPhotoUser": (
        'mutation { createPhotoUser(input: {displayName: "Ada"}) { displayName } }',
        Role.USER,
        ["PutItem sparks"],
    ),
    "updatePhotoUser": (
        'mutation { updatePhotoUser(input: {displayName: "Ada"}) { displayName } }',
        Role.USER,
        ["UpdateItem sparks"],
    ),
    "createPhoto": (
        "mutation { createPhoto(input: {contentType: JPEG}) { original { url } } }",
        Role.USER,
        ["TransactWriteItems sparks"],
    ),
    "completePhoto": (
        f'mutation {{ completePhoto(imageId: "{WAITING}") {{ width }} }}',
        Role.USER,
        ["GetItem sparks", "Query sparks", "TransactWriteItems sparks", "UpdateItem sparks"],
    ),
    "cancelUpload": (
        f'mutation {{ cancelUpload(imageId: "{WAITING}") }}',
        Role.USER,
        ["DeleteItem sparks", "GetItem sparks", "Query sparks", "TransactWriteItems sparks"],
    ),
    "updatePhoto": (
        """mutation {
          updatePhoto(input: {imageId: "i1", description: "New"}, takenAt: "2023-01-01T00:00:00Z") { description }
        }""",
        Role.USER,
        ["UpdateItem sparks"],
    ),
    "deletePhoto": (
        'mutation { deletePhoto(imageId: "i1", takenAt: "2023-01-01T00:00:00Z") { tags } }',
        Role.USER,
        ["BatchGetItem sparks", "DeleteItem sparks", "GetItem sparks", "TransactWriteItems sparks"],
    ),
    "tagFace": (
        """mutation { tagFace(takenAt: "2023-01-01T00:00:00Z", input: {imageId: "i1", personId: "p2",
          boundingBox: {left: 0.1, top: 0.1, width: 0.2, height: 0.2}}) { confidence } }""",
        Role.USER,
        ["GetItem sparks", "Query sparks", "TransactWriteItems sparks"],
    ),
    "untagFace": (
        'mutation { untagFace(faceId: "f1", imageId: "i1") { confidence } }',
        Role.USER,
        ["GetItem sparks", "GetItem sparks", "Query sparks", "TransactWriteItems sparks"],
    ),
    "createPerson": ('mutation { createPerson(input: {name: "Eve"}) { name } }', Role.ADMIN, ["PutItem sparks"]),
    "updatePerson": (
        'mutation { updatePerson(input: {personId: "p1", name: "Hopper"}) { name } }',
        Role.ADMIN,
        ["Query sparks", "TransactWriteItems sparks"],
    ),
    "mergePersons": (
        'mutation { mergePersons(from: "p1", into: "p2") { faceCount } }',
        Role.ADMIN,
        [
            *["GetItem sparks"] * 2,
            *["Query sparks"] * 9,
            *["Query sparks.personId-PK-index"] * 2,
            *["TransactWriteItems sparks"] * 3,
        ],
    ),
    "createLivestream": (
        """mutation { createLivestream(
          input: {title: "Live", streamUrl: "https://example.com/live", startTime: "2026-06-25T12:00:00Z"}
        ) { title } }""",
        Role.ADMIN,
        ["PutItem sparks"],
    ),
    "updateLivestream": (
        'mutation { updateLivestream(input: {livestreamId: "l1", title: "New"}) { title } }',
        Role.ADMIN,
        ["Query sparks", "UpdateItem sparks"],
    ),
    "endLivestream": (
        'mutation { endLivestream(livestreamId: "l1") { state } }',
        Role.ADMIN,
        ["Query sparks", "UpdateItem sparks"],
    ),
    "logEvent": (
        'mutation { logEvent(events: [{eventType: "PHOTO_VIEW"}]) { eventType } }',
        Role.USER,
        ["BatchWriteItem sparks"],
    ),
}


async def prepare_photo_operations(served: Served) -> None:
    """Create what the operations need: a photo with a face, a photo whose file waits for confirmation, a livestream."""
    await put_library_items(served, photo_user(uploadCount=1), I1, F1, P1, P2, livestream("l1"))
    reserve = f'mutation {{ createPhoto(input: {{contentType: JPEG, imageId: "{WAITING}"}}) {{ imageId }} }}'
    assert (await served.ask(reserve, user="ada", email=ADA)).errors is None
    file = io.BytesIO()
    Image.new("RGB", (60, 40), "teal").save(file, "JPEG")
    objects = served.gateway.objects
    await objects.write(f"incoming/{WAITING}/original", file.getvalue(), content_type="image/jpeg")
