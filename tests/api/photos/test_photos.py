"""Photos and their related items (SPARKS-1 … SPARKS-6), as this gateway writes them and as other programs did."""

from typing import Any

import pytest

from datastore.dynamodb.records import record_or_error
from datastore.errors import Internal
from datastore.photos.photos import Photo
from resolvers.shared.global_ids import global_id
from tests.support.answers import data_of
from tests.support.photo_items import (
    ADA,
    EVE,
    OTHERWISE,
    WRITTEN,
    ask_as,
    face,
    person,
    photo,
    photo_user,
    put_library_items,
    tagged,
    user_id,
)
from tests.support.served import Served

BY_TYPE, BY_EMAIL = "Query sparks.entityType-PK-index", "Query sparks.email-PK-index"

GET, BATCH, QUERY = "GetItem sparks", "BatchGetItem sparks", "Query sparks"

SHOWN = """imageId user { displayName } persons { name }
  faces { faceId confidence boundingBox { left top width height } person { name } photo { imageId } }"""

INSTANT = "2023-01-01T00:00:00.000Z"


async def put_25_photos(served: Served) -> None:
    """Store 25 photos of Ada, with 12 persons, two on each photo, as this gateway writes them."""
    people = [person(f"p{number:02}") for number in range(12)]
    photos, faces = [], []
    for number in range(25):
        image_id = f"i{number:02}"
        shown = [people[number % 12], people[(number + 1) % 12]]
        on_it = [face(f"f{number:02}{place}", image_id, who["personId"]) for place, who in enumerate(shown)]
        photos.append(tagged(photo(image_id), on_it, *shown))
        faces += on_it
    await put_library_items(served, photo_user(), *people, *photos, *faces)


# The cost of pages.


async def test_a_page_with_persons_and_faces_is_one_query_and_one_batch(served: Served) -> None:
    await put_25_photos(served)

    answer = await served.ask(f"{{ photos {{ nodes {{ {SHOWN} }} }} }}")

    nodes = data_of(answer)["photos"]["nodes"]
    assert [node["imageId"] for node in nodes] == [f"i{number:02}" for number in reversed(range(25))]
    box = {"left": 0.1, "top": 0.1, "width": 0.2, "height": 0.2}
    assert nodes[0] == {
        "imageId": "i24",
        "user": {"displayName": "ada"},
        "persons": [{"name": "P00"}, {"name": "P01"}],
        "faces": [
            {
                "faceId": f"f24{place}",
                "confidence": 0.98,
                "boundingBox": box,
                "person": {"name": f"P0{place}"},
                "photo": {"imageId": "i24"},
            }
            for place in (0, 1)
        ],
    }
    assert answer.made == [BATCH, BY_TYPE]


async def test_a_page_costs_the_same_from_either_end_of_every_list_of_photos(served: Served) -> None:
    await put_25_photos(served)
    id = user_id(served, ADA)
    nodes = f"nodes {{ {SHOWN} }}"
    costs: dict[str, list[str]] = {
        f"{{ photos(last: 25) {{ edges {{ cursor node {{ {SHOWN} }} }} pageInfo {{ endCursor }} }} }}": [
            BATCH,
            BY_TYPE,
        ],
        f"{{ photos(order: ASCENDING) {{ ...Shown }} }} fragment Shown on PhotoConnection {{ {nodes} }}": [
            BATCH,
            BY_TYPE,
        ],
        f'{{ photosByUser(userId: "{id}") {{ {nodes} }} }}': [BATCH, BY_EMAIL],
        f'{{ photosByUser(email: "ADA@example.com", last: 25) {{ edges {{ node {{ {SHOWN} }} }} }} }}': [
            BATCH,
            BY_EMAIL,
        ],
        f'{{ photoUser(id: "{id}") {{ displayName photos {{ {nodes} }} }} }}': [BATCH, GET, BY_EMAIL],
        f'{{ photos {{ {nodes} }} photosByUser(userId: "{id}") {{ {nodes} }} }}': [BATCH, BY_EMAIL, BY_TYPE],
        "{ photos { nodes { faces { person { name } photo { user { displayName } } } } } }": [BATCH, GET, BY_TYPE],
        '{ photos { nodes { faces(personId: "p01") { person { name } } } } }': [BATCH, BY_TYPE],
        "{ photos { nodes { imageId userId personIds tags thumbnailUrl } } }": [BY_TYPE],
    }

    made = {query: await served.ask(query) for query in costs}

    assert {query: data_of(answer) and answer.made for query, answer in made.items()} == costs


async def test_the_faces_of_one_person_are_shown_and_a_person_without_profile_is_null(served: Served) -> None:
    faces = [face("f1", "a", "p1"), face("f2", "a", "p2"), face("f3", "a", "p1")]
    await put_library_items(served, tagged(photo("a", EVE), faces, person("p1"), person("p2")), *faces)

    answer = await served.ask(
        """{ photo(id: "a") { user { displayName } email persons { name }
          all: faces { faceId } none: faces(personId: "x") { faceId }
          hers: faces(personId: "p1") { faceId personId } } }"""
    )

    assert data_of(answer)["photo"] == {
        "user": None,
        "email": None,
        "persons": [],  # the items of the others are deleted
        "all": [{"faceId": "f1"}, {"faceId": "f2"}, {"faceId": "f3"}],
        "hers": [{"faceId": "f1", "personId": "p1"}, {"faceId": "f3", "personId": "p1"}],
        "none": [],
    }


# Items of other programs.


async def test_documented_photos_are_read(served: Served) -> None:
    bare = photo("b", createdAt=WRITTEN, colour="blue", tags=None, description=None, personNames=None, faces=None)
    old = photo("a", persons=["p1", "p2", "gone"])
    del old["tags"], old["description"], bare["persons"]
    await put_library_items(
        served, photo_user(uploadLimit=None), old, bare, person("p1"), person("p2", faceCount=None, thumbnailUrl=None)
    )

    answer = await ask_as(
        served,
        """{ photos(order: ASCENDING) { nodes {
          imageId takenAt createdAt description tags personIds email contentType size width height
          persons { personId name faceCount thumbnailUrl } faces { faceId } user { uploadLimit uploadCount }
        } } }""",
    )

    common: dict[str, Any] = {
        "takenAt": INSTANT,
        "createdAt": INSTANT,
        "description": None,
        "tags": [],
        "email": ADA,
        "contentType": None,
        "size": None,
        "width": None,
        "height": None,
        "faces": [],
        "user": {"uploadLimit": 100, "uploadCount": None},
    }
    people = [
        {"personId": "p1", "name": "P1", "faceCount": 0, "thumbnailUrl": "https://example.com/thumbnail.jpg"},
        {"personId": "p2", "name": "P2", "faceCount": None, "thumbnailUrl": None},
    ]
    assert data_of(answer)["photos"]["nodes"] == [
        {"imageId": "a", "personIds": ["p1", "p2", "gone"], "persons": people, **common},
        {"imageId": "b", "personIds": [], "persons": [], **common},
    ]
    # The photo has no names of its persons, so each person is found by the id.
    assert answer.made == [GET, QUERY, QUERY, QUERY, BY_TYPE, *["Query sparks.personId-PK-index"] * 3]


async def test_the_type_of_a_photo_s_file_is_read_in_both_forms(served: Served) -> None:
    file: dict[str, Any] = {"contentType": "image/png", "size": 1234, "width": 60, "height": 40}
    partly = {"contentType": "image/jpeg", "size": None}
    await put_library_items(
        served, photo("a", **file), photo("b", file=file), photo("c", file=partly), photo("d", file=None)
    )
    fields = "{ contentType size width height }"

    alone = await served.ask("{ " + " ".join(f'{id}: photo(id: "{id}") {fields}' for id in "abcd") + " }")
    listed = await served.ask(f"{{ photos(order: ASCENDING) {{ nodes {fields} }} }}")

    nothing = dict.fromkeys(file)
    assert data_of(alone) == {"a": file, "b": file, "c": nothing | partly, "d": nothing}
    assert data_of(listed)["photos"]["nodes"][1:] == [file, nothing | partly, nothing]
    assert (listed.made, Photo.decoder(photo("a", **file)).item()["file"]) == ([BY_TYPE], file)


@pytest.mark.parametrize(
    "damage",
    [
        {"createdAt": "yesterday"},
        {"SK": "IMAGE"},
        {"SK": "IMAGE#someday"},
        {"faces": [{"faceId": "f"}]},
        {"faces": ["f"]},
        {"personNames": ["p1"]},
        {"size": "big"},
        {"file": {"size": "big"}},
        {"file": "image/png"},
        {"tags": 7},
    ],
    ids=str,
)
def test_an_unreadable_field_of_a_photo_is_an_error_in_its_place(damage: dict[str, Any]) -> None:
    assert isinstance(record_or_error(Photo.decoder, photo("a")), Photo)
    assert isinstance(record_or_error(Photo.decoder, photo("a") | damage), Internal)


async def test_a_damaged_photo_is_an_error_in_its_place_of_the_page(served: Served) -> None:
    await put_library_items(served, photo("a"), photo("b", at="someday"), photo("c") | {"SK": "IMAGE"}, photo("d"))

    page = await served.ask("{ photos { nodes { imageId } edges { cursor } } }")
    alone = await served.ask('{ photo(id: "b") { imageId } other: photo(id: "a") { imageId } }')

    assert [node and node["imageId"] for node in page.data["photos"]["nodes"]] == ["d", None, None, "a"]
    assert len({edge["cursor"] for edge in page.data["photos"]["edges"]}) == 4
    assert [(error["path"], error["extensions"]["code"]) for error in page.errors or ()] == [
        (["photos", "nodes", 1], "INTERNAL"),
        (["photos", "nodes", 2], "INTERNAL"),
    ]
    assert alone.data == {"photo": None, "other": {"imageId": "a"}}
    assert [(error["path"], error["message"]) for error in alone.errors or ()] == [
        (["photo"], "A stored record is damaged.")
    ]


async def test_a_damaged_person_or_face_is_an_error_in_its_place_of_the_photo(served: Served) -> None:
    people = [person("p1"), person("p2", createdAt="once"), person("p3")]
    faces = [face("f1", "a", "p1"), face("f2", "a", "p2", boundingBox={"left": 0}), face("f3", "a", "p3")]
    await put_library_items(served, tagged(photo("a"), faces, *people), *people, *faces[:2])

    answer = await served.ask('{ photo(id: "a") { persons { name } faces { faceId person { name } } } }')

    assert answer.data["photo"] == {
        "persons": [{"name": "P1"}, None, {"name": "P3"}],
        # The third person is deleted.
        "faces": [{"faceId": "f1", "person": {"name": "P1"}}, None],
    }
    assert [(error["path"], error["extensions"]["code"]) for error in answer.errors or ()] == [
        (["photo", "persons", 1], "INTERNAL"),
        (["photo", "faces", 1], "INTERNAL"),
    ]


# One photo, one person.


async def test_a_photo_is_one_point_read_if_its_time_is_given_else_one_query(
    served: Served,
) -> None:
    await put_library_items(served, photo("ours"), photo("theirs", at=OTHERWISE))
    ask = "query ($id: ID!, $at: DateTime) { photo(id: $id, takenAt: $at) { imageId takenAt } }"

    async def found(id: str, at: str | None = None) -> tuple[Any, list[str]]:
        answer = await served.ask(ask, {"id": id, "at": at})
        return data_of(answer)["photo"], answer.made

    ours, theirs = [{"imageId": id, "takenAt": INSTANT} for id in ("ours", "theirs")]
    assert await found("ours", "2023-01-01T01:00:00+01:00") == (ours, [GET])
    assert await found("ours") == (ours, [QUERY])
    # Its key has another form than we would write, so the point read finds no item.
    assert await found("theirs", WRITTEN) == (theirs, [GET, QUERY])
    assert await found("ours", "2023-01-01T00:00:01Z") == (None, [GET, QUERY])
    assert await found("none") == (None, [QUERY])


async def test_a_renamed_user_is_queried_once_however_many_photos_have_the_old_name(served: Served) -> None:
    was, now = person("p1", "Old"), person("p1", "New")
    faces = [face(f"f{number}", f"i{number}", "p1") for number in range(5)]
    photos = [tagged(photo(f"i{number}"), [faces[number]], was) for number in range(5)]
    await put_library_items(served, now, *photos, *faces)

    answer = await served.ask("{ photos { nodes { persons { name } faces { person { name } } } } }")

    shown = {"persons": [{"name": "New"}], "faces": [{"person": {"name": "New"}}]}
    assert data_of(answer)["photos"]["nodes"] == [shown] * 5
    assert answer.made == [BATCH, QUERY, BY_TYPE]


async def test_a_face_has_its_photo_and_person(served: Served) -> None:
    await put_library_items(served, photo("a"), person("p"), face("new", "a", "p"), face("old", "a", "p", at=None))

    async def shown(id: str) -> tuple[Any, list[str]]:
        answer = await served.ask(
            "query ($id: ID!) { node(id: $id) { ... on Face { photo { imageId } person { name } } } }",
            {"id": global_id("Face", id, "a")},
        )
        return data_of(answer)["node"], answer.made

    expected = {"photo": {"imageId": "a"}, "person": {"name": "P"}}
    assert await shown("new") == (expected, [GET, GET, QUERY])
    assert await shown("old") == (expected, [GET, QUERY, QUERY])


# Consistency.


@pytest.mark.parametrize(
    ("field", "operation"),
    [
        ('photo(id: "a", takenAt: "2023-01-01T00:00:00Z", consistent: %s) { imageId }', "GetItem"),
        ('photo(id: "a", consistent: %s) { imageId }', "Query"),
        ('person(id: "p", consistent: %s) { name }', "Query"),
        ('photoUser(email: "ada@example.com", consistent: %s) { displayName }', "GetItem"),
    ],
)
async def test_table_reads_can_be_consistent(served: Served, field: str, operation: str) -> None:
    await put_library_items(served, photo_user(), photo("a"), person("p"))

    async def asked(consistent: str) -> tuple[Any, list[tuple[str, bool]]]:
        answer = await served.ask(f"{{ it: {field % consistent} }}", user="ada", email=ADA)
        return data_of(answer)["it"], [
            (call.operation, call.request.get("ConsistentRead", False)) for call in answer.calls
        ]

    then, now = await asked("false"), await asked("true")

    assert then[0]
    assert then[0] == now[0]
    assert (then[1], now[1]) == ([(operation, False)], [(operation, True)])


# Nodes.


async def test_every_node_of_the_library_is_read_by_its_id(served: Served) -> None:
    shown, people = face("f", "ours", "p"), person("p")
    await put_library_items(served, photo_user(), tagged(photo("ours"), [shown], people), photo("theirs", at=OTHERWISE))
    await put_library_items(served, people, shown)
    ids = [
        *[node["id"] for node in data_of(await served.ask("{ photos { nodes { id } } }"))["photos"]["nodes"]],
        *data_of(await served.ask('{ person(id: "p") { id } }'))["person"].values(),
        *[one["id"] for one in data_of(await served.ask('{ photo(id: "ours") { faces { id } } }'))["photo"]["faces"]],
        *data_of(await served.ask('{ photo(id: "ours") { user { id } } }'))["photo"]["user"].values(),
    ]

    answer = await served.ask(
        "query ($ids: [ID!]!) { nodes(ids: $ids) { __typename id ... on Photo { imageId } ... on Face { faceId } } }",
        {"ids": ids},
    )

    assert data_of(answer)["nodes"] == [
        {"__typename": "Photo", "id": ids[0], "imageId": "theirs"},
        {"__typename": "Photo", "id": ids[1], "imageId": "ours"},
        {"__typename": "Person", "id": ids[2]},
        {"__typename": "Face", "id": ids[3], "faceId": "f"},
        {"__typename": "PhotoUser", "id": ids[4]},
    ]
    # The id of a photo contains the time in its key, as either program wrote it. That of a person contains no name.
    assert answer.made == [BATCH, QUERY]


async def test_ids_of_missing_items_are_null(served: Served) -> None:
    await put_library_items(served, photo_user(), photo("a"), person("p"), face("f", "a", "p"))
    ids = [
        global_id("Photo", "a", "2023-01-01T00:00:01Z"),
        global_id("Photo", "a", "someday"),
        global_id("Photo", "none", WRITTEN),
        global_id("PhotoUser", ADA),
        global_id("PhotoUser", user_id(served, ADA)[:-1]),
        global_id("PhotoUser", user_id(served, "nobody@example.com")),
        global_id("Person", "none"),
        global_id("Face", "f", "none"),
        global_id("Face", "none", "a"),
    ]

    answer = await served.ask("query ($ids: [ID!]!) { nodes(ids: $ids) { id } }", {"ids": ids})

    assert data_of(answer)["nodes"] == [None] * len(ids)


@pytest.mark.parametrize("spelling", ["{}!!", "{}==", " {}", "{}\n"])
async def test_a_node_has_one_id_only(served: Served, spelling: str) -> None:
    await put_library_items(served, photo("a"))
    id = data_of(await served.ask('{ photo(id: "a") { id } }'))["photo"]["id"]

    answer = await served.ask("query ($id: ID!) { node(id: $id) { id } }", {"id": spelling.format(id)})

    assert answer.codes == ["BAD_USER_INPUT"]
    assert answer.calls == []


@pytest.mark.parametrize("parts", [("", ""), ("i" * 3000, WRITTEN)], ids=["empty", "too long"])
async def test_an_id_without_a_valid_key_is_named(served: Served, parts: tuple[str, str]) -> None:
    answer = await served.ask("query ($ids: [ID!]!) { nodes(ids: $ids) { id } }", {"ids": [global_id("Photo", *parts)]})

    assert [(error["extensions"]["code"], error["extensions"]["field"]) for error in answer.errors or ()] == [
        ("BAD_USER_INPUT", "ids[0]")
    ]
