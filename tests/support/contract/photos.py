"""The contract of the photo library: each field with its access patterns, callers, calls, and an operation."""

import io

from PIL import Image

from datastore.model.access_patterns import Who
from datastore.model.ids import uuid7
from tests.support.contract.pages import Again, Field, Followed, NodeType, Owner, Page
from tests.support.photo_items import ADA, face, livestream, person, photo, photo_user, put_library_items, tagged
from tests.support.served import NOON, Served

P1, P2 = person("p1", "Grace", faceCount=1), person("p2", "Alan")
F1 = face("f1", "i1", "p1")
I1 = tagged(photo("i1"), [F1], P1)
WAITING = uuid7(NOON, "waiting")
BY_TYPE = "Query sparks.entityType-PK-index"


async def prepare_photos(served: Served) -> dict[str, str]:
    """Create what the operations need: a photo with a face, a photo whose file waits for confirmation, a livestream."""
    await put_library_items(served, photo_user(uploadCount=1), I1, F1, P1, P2, livestream("l1"))
    reserve = f'mutation {{ createPhoto(input: {{contentType: "image/jpeg", imageId: "{WAITING}"}}) {{ imageId }} }}'
    assert (await served.ask(reserve, user="ada", email=ADA)).errors is None
    file = io.BytesIO()
    Image.new("RGB", (60, 40), "teal").save(file, "JPEG")
    objects = served.gateway.objects
    await objects.write(f"incoming/{WAITING}/original", file.getvalue(), content_type="image/jpeg")
    return {}


PAGE = Page(
    name="photos",
    email=ADA,
    prepare=prepare_photos,
    fields=(
        Field(
            "photoUser",
            ("SPARKS-1", Who.USER, {"GetItem", "BatchGetItem"}),
            '{ photoUser(email: "ada@example.com") { displayName } }',
            ["GetItem sparks"],
            also=[("SPARKS-1", Who.ANY, {"GetItem", "BatchGetItem"})],
            owner=Owner.NAMED,
            by_email=True,
        ),
        Field(
            "photo",
            ("SPARKS-2", Who.ANY, {"GetItem", "BatchGetItem", "Query"}),
            '{ photo(id: "i1", takenAt: "2023-01-01T00:00:00Z") { tags } }',
            ["GetItem sparks"],
        ),
        Field(
            "photos",
            ("SPARKS-3", Who.ANY, {"Query"}),
            "{ photos { nodes { tags } } }",
            [BY_TYPE],
        ),
        Field(
            "photoUsers",
            ("SPARKS-4", Who.ADMIN, {"Query"}),
            "{ photoUsers { nodes { email } } }",
            [BY_TYPE],
        ),
        Field(
            "photosByUser",
            ("SPARKS-5", Who.ANY, {"Query"}),
            '{ photosByUser(email: "ada@example.com") { nodes { tags } } }',
            ["Query sparks.email-PK-index"],
        ),
        Field(
            "persons",
            ("SPARKS-6", Who.ANY, {"Query"}),
            "{ persons { nodes { name } } }",
            [BY_TYPE],
        ),
        # The faces, then their photos.
        Field(
            "photosByPerson",
            ("SPARKS-7", Who.ANY, {"Query", "GetItem", "BatchGetItem"}),
            '{ photosByPerson(personId: "p1") { edges { node { tags } faces { confidence } } } }',
            ["GetItem sparks", "Query sparks.personId-PK-index"],
        ),
        Field(
            "latestLivestream",
            ("SPARKS-8", Who.ANY, {"Query"}),
            "{ latestLivestream { title status } }",
            [BY_TYPE],
        ),
        Field(
            "livestreams",
            ("SPARKS-8", Who.ANY, {"Query"}),
            "{ livestreams { nodes { title } } }",
            [BY_TYPE],
        ),
        Field(
            "person",
            ("SPARKS-N1", Who.ANY, {"GetItem", "BatchGetItem", "Query"}),
            '{ person(id: "p1") { name } }',
            ["Query sparks"],
        ),
        Field(
            "livestream",
            ("SPARKS-N3", Who.ANY, {"Query"}),
            '{ livestream(id: "l1") { title } }',
            ["Query sparks"],
        ),
        Field(
            "createPhotoUser",
            ("SPARKS-W1", Who.USER, {"PutItem"}),
            'mutation { createPhotoUser(input: {displayName: "Ada"}) { displayName } }',
            ["PutItem sparks"],
            by_email=True,
        ),
        Field(
            "updatePhotoUser",
            ("SPARKS-W1", Who.USER, {"UpdateItem"}),
            'mutation { updatePhotoUser(input: {displayName: "Ada"}) { displayName } }',
            ["UpdateItem sparks"],
            by_email=True,
            again=Again.WRITTEN,
        ),
        # At the limit, expired reservations are found and released.
        Field(
            "createPhoto",
            (
                "SPARKS-W1",
                Who.USER,
                {"GetItem", "BatchGetItem", "Query", "UpdateItem", "TransactWriteItems", "DeleteItem"},
            ),
            'mutation { createPhoto(input: {contentType: "image/jpeg"}) { original { url } } }',
            ["TransactWriteItems sparks"],
            by_email=True,
        ),
        # The reservation is read first. It names the files before they are written.
        Field(
            "completePhoto",
            ("SPARKS-W1", Who.USER, {"GetItem", "BatchGetItem", "Query", "UpdateItem", "TransactWriteItems"}),
            f'mutation {{ completePhoto(id: "{WAITING}") {{ width }} }}',
            ["GetItem sparks", "Query sparks", "TransactWriteItems sparks", "UpdateItem sparks"],
            by_email=True,
            missing="NOT_FOUND",
            order=-4,
            is_prepared_again=True,  # `cancelPhotoUpload` consumes the upload
        ),
        # The reservation and its photo are read first; the note of its files is deleted with them.
        Field(
            "cancelPhotoUpload",
            ("SPARKS-W1", Who.USER, {"GetItem", "BatchGetItem", "Query", "TransactWriteItems", "DeleteItem"}),
            f'mutation {{ cancelPhotoUpload(id: "{WAITING}") }}',
            ["DeleteItem sparks", "GetItem sparks", "Query sparks", "TransactWriteItems sparks"],
            by_email=True,
            again=Again.NOTHING_THERE,
            order=-5,
        ),
        Field(
            "updatePhoto",
            ("SPARKS-W1", Who.USER, {"Query", "UpdateItem"}),
            """mutation {
          updatePhoto(id: "i1", takenAt: "2023-01-01T00:00:00Z", input: {description: "New"}) { description }
        }""",
            ["UpdateItem sparks"],
            owner=Owner.STORED,
            missing="NOT_FOUND",
            again=Again.WRITTEN,
        ),
        # The photo and its faces are read first; the note of its files is deleted with them.
        Field(
            "deletePhoto",
            ("SPARKS-W1", Who.USER, {"GetItem", "BatchGetItem", "Query", "TransactWriteItems", "DeleteItem"}),
            'mutation { deletePhoto(id: "i1", takenAt: "2023-01-01T00:00:00Z") { tags } }',
            ["BatchGetItem sparks", "DeleteItem sparks", "GetItem sparks", "TransactWriteItems sparks"],
            owner=Owner.STORED_OR_ADMIN,
            again=Again.NOTHING_THERE,
            order=8,
        ),
        # The photo and the person are read first.
        Field(
            "tagFace",
            ("SPARKS-W1", Who.USER, {"GetItem", "BatchGetItem", "Query", "TransactWriteItems"}),
            """mutation { tagFace(imageId: "i1", takenAt: "2023-01-01T00:00:00Z", input: {personId: "p2",
          boundingBox: {left: 0.1, top: 0.1, width: 0.2, height: 0.2}}) { confidence } }""",
            ["GetItem sparks", "Query sparks", "TransactWriteItems sparks"],
            owner=Owner.STORED_OR_ADMIN,
            missing="NOT_FOUND",
        ),
        Field(
            "untagFace",
            ("SPARKS-W1", Who.USER, {"GetItem", "BatchGetItem", "Query", "TransactWriteItems"}),
            'mutation { untagFace(faceId: "f1", imageId: "i1") { confidence } }',
            ["GetItem sparks", "GetItem sparks", "Query sparks", "TransactWriteItems sparks"],
            owner=Owner.STORED_OR_ADMIN,
            again=Again.NOTHING_THERE,
            order=7,
        ),
        # With a given id: the query looks for one under another name.
        Field(
            "createPerson",
            ("SPARKS-W1", Who.ADMIN, {"Query", "PutItem", "TransactWriteItems"}),
            'mutation { createPerson(input: {name: "Eve"}) { name } }',
            ["PutItem sparks"],
        ),
        # A new name is a new key: the item moves.
        Field(
            "updatePerson",
            ("SPARKS-W1", Who.ADMIN, {"Query", "UpdateItem", "TransactWriteItems"}),
            'mutation { updatePerson(id: "p1", input: {name: "Hopper"}) { name } }',
            ["Query sparks", "TransactWriteItems sparks"],
            missing="NOT_FOUND",
            again=Again.WRITTEN,
        ),
        Field(
            "mergePersons",
            ("SPARKS-W1", Who.ADMIN, {"GetItem", "BatchGetItem", "Query", "TransactWriteItems"}),
            'mutation { mergePersons(fromId: "p1", intoId: "p2") { faceCount } }',
            [
                *["GetItem sparks"] * 2,
                *["Query sparks"] * 9,
                *["Query sparks.personId-PK-index"] * 2,
                *["TransactWriteItems sparks"] * 3,
            ],
            missing="NOT_FOUND",
            order=6,
        ),
        Field(
            "createLivestream",
            ("SPARKS-W1", Who.ADMIN, {"PutItem"}),
            """mutation { createLivestream(
          input: {title: "Live", streamUrl: "https://example.com/live", startTime: "2026-06-25T12:00:00Z"}
        ) { title } }""",
            ["PutItem sparks"],
        ),
        Field(
            "updateLivestream",
            ("SPARKS-W1", Who.ADMIN, {"Query", "UpdateItem"}),
            'mutation { updateLivestream(id: "l1", input: {title: "New"}) { title } }',
            ["Query sparks", "UpdateItem sparks"],
            missing="NOT_FOUND",
            again=Again.WRITTEN,
        ),
        Field(
            "endLivestream",
            ("SPARKS-W1", Who.ADMIN, {"Query", "UpdateItem"}),
            'mutation { endLivestream(id: "l1", input: {}) { status } }',
            ["Query sparks", "UpdateItem sparks"],
            missing="NOT_FOUND",
        ),
        Field(
            "logEvent",
            ("SPARKS-W1", Who.USER, {"BatchWriteItem"}),
            'mutation { logEvent(input: [{eventType: "PHOTO_VIEW"}]) { eventType } }',
            ["BatchWriteItem sparks"],
        ),
    ),
    subscriptions=(
        # Livestreams begin and end without a write.
        Followed(
            "livestreamChanged",
            ("SPARKS-S1", Who.ANY, {"Query"}),
            "livestreamChanged { livestreamId }",
        ),
    ),
    cursors={
        "livestreams": ("SPARKS-8", '{"order":"ascending"}', "{}"),
        "persons": ("SPARKS-6", "{}", "{}"),
        "photoUsers": ("SPARKS-4", "{}", "{}"),
        "photos": ("SPARKS-3", '{"order":"ascending"}', "{}"),
        "photosByUser": (
            "SPARKS-5",
            '{"email":"ada@example.com","order":"ascending"}',
            '{"email":"ada@example.com"}',
        ),
        "photosByPerson": (
            "SPARKS-7",
            '{"order":"ascending","personId":"p1"}',
            '{"personId":"p1"}',
        ),
    },
    nodes=(
        NodeType("Face", 'photo(id: "i1", takenAt: "2023-01-01T00:00:00Z") { faces { id } }'),
        NodeType("Livestream", 'livestream(id: "l1") { id }'),
        NodeType("Person", 'person(id: "p1") { id }'),
        NodeType("Photo", 'photo(id: "i1", takenAt: "2023-01-01T00:00:00Z") { id }'),
        NodeType("PhotoUser", 'photo(id: "i1", takenAt: "2023-01-01T00:00:00Z") { user { id } }'),
    ),
)
