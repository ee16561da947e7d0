"""SPARKS-7, the photos of a person: each is listed once, at the position of the person's first face on it."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from datastore.photos.lookups import CONCURRENCY
from tests.support.photo_items import face, person, photo, photo_user, put_library_items, tagged
from tests.support.served import Answer, Served, queries_at_once

BATCH, LIST, FOUND = "BatchGetItem sparks", "Query sparks.personId-PK-index", "Query sparks"
ARGUMENTS = "personId: $person, first: $first, after: $after, last: $last, before: $before, order: $order"
PAGE = f"""
query ($person: ID!, $first: Int, $after: String, $last: Int, $before: String, $order: SortOrder! = DESCENDING) {{
  photosByPerson({ARGUMENTS}) {{
    edges {{ cursor node {{ imageId }} FACES }}
    pageInfo {{ hasNextPage hasPreviousPage startCursor endCursor }}
    lastEvaluatedKey
  }}
}}
"""
Item = Mapping[str, Any]


@dataclass(frozen=True)
class PersonPage:
    """A page as a client received it: the photos, the person's faces on each, and the calls."""

    photos: list[str]
    faces: list[list[str]]
    cursors: list[str]
    more: bool
    less: bool
    made: list[str]

    @property
    def cost(self) -> tuple[int, int, int]:
        """The number of Queries of the list, Queries for a photo, and batches."""
        return self.made.count(LIST), self.made.count(FOUND), self.made.count(BATCH)


async def page_of_person(served: Served, person_id: str = "p1", *, faces: bool = False, **paging: Any) -> PersonPage:
    query = PAGE.replace("FACES", "faces { faceId personId imageId }" if faces else "")
    answer = await served.ask(query, {"person": person_id, **paging})
    assert answer.errors is None, answer.errors
    found = answer.data["photosByPerson"]
    edges, info = found["edges"], found["pageInfo"]
    shown = [edge.get("faces", []) for edge in edges]
    cursors = [edge["cursor"] for edge in edges]
    assert {each["personId"] for on_it in shown for each in on_it} <= {person_id}
    assert [info["startCursor"], info["endCursor"]] == ([cursors[0], cursors[-1]] if cursors else [None, None])
    assert found["lastEvaluatedKey"] == (cursors[-1] if info["hasNextPage"] else None)
    return PersonPage(
        [edge["node"]["imageId"] for edge in edges],
        [[each["faceId"] for each in on_it] for on_it in shown],
        cursors,
        info["hasNextPage"],
        info["hasPreviousPage"],
        answer.made,
    )


async def pages_forward(served: Served, size: int, person_id: str = "p1", **arguments: Any) -> list[PersonPage]:
    pages = [await page_of_person(served, person_id, first=size, **arguments)]
    while pages[-1].more:
        pages.append(await page_of_person(served, person_id, first=size, after=pages[-1].cursors[-1], **arguments))
    assert all(len(each.photos) == size for each in pages[:-1])
    assert [each.less for each in pages] == [False, *[True] * (len(pages) - 1)]
    return pages


async def pages_backward(served: Served, size: int, person_id: str = "p1", **arguments: Any) -> list[PersonPage]:
    """Read all pages backward. Return them in the order of the list."""
    pages = [await page_of_person(served, person_id, last=size, **arguments)]
    while pages[0].less:
        pages.insert(0, await page_of_person(served, person_id, last=size, before=pages[0].cursors[0], **arguments))
    assert all(len(each.photos) == size for each in pages[1:])
    assert [each.more for each in pages] == [*[True] * (len(pages) - 1), False]
    return pages


def photos_of(pages: Sequence[PersonPage]) -> list[str]:
    return [image_id for each in pages for image_id in each.photos]


def numbered_names(letter: str, numbers: Sequence[int]) -> list[str]:
    return [f"{letter}{number:03}" for number in numbers]


ADA = person("p1", "Ada")


async def put_photos(
    served: Served,
    shots: Sequence[Sequence[int]],
    *,
    with_face_lists: bool = True,
    at: str | None = "2023-01-01T00:00:00Z",
) -> list[dict[str, Any]]:
    """Store a photo (`i000` …) for each list of numbers of Ada's faces on it (`f000` …). Return the photos."""
    photos, faces = [], []
    for number, on_it in enumerate(shots):
        photo_faces = [face(f"f{each:03}", f"i{number:03}", "p1", at) for each in on_it]
        shot = photo(f"i{number:03}")
        photos.append(tagged(shot, photo_faces, ADA) if with_face_lists else shot)
        faces += photo_faces
    await put_library_items(served, photo_user(), ADA, *photos, *faces)
    return photos


# Cost


async def test_a_page_of_25_is_one_query_and_one_batch(served: Served) -> None:
    await put_photos(served, [[number] for number in range(30)])

    first = await page_of_person(served, faces=True)
    rest = await page_of_person(served, faces=True, after=first.cursors[-1])

    assert first.photos == numbered_names("i", range(29, 4, -1))
    assert first.faces == [[each] for each in numbered_names("f", range(29, 4, -1))]
    assert (first.more, first.less, first.cost) == (True, False, (1, 0, 1))
    assert (rest.photos, rest.more, rest.less, rest.cost) == (
        numbered_names("i", range(4, -1, -1)),
        False,
        True,
        (1, 0, 1),
    )


@pytest.mark.parametrize("faces", [True, False])
async def test_two_faces_on_every_photo_cost_no_more_than_one(served: Served, faces: bool) -> None:
    await put_photos(served, [[2 * number, 2 * number + 1] for number in range(40)])

    first = await page_of_person(served, faces=faces)
    second = await page_of_person(served, faces=faces, after=first.cursors[-1])
    back = await page_of_person(served, faces=faces, last=25, before=second.cursors[0])

    assert first.photos == back.photos == numbered_names("i", range(39, 14, -1))
    assert second.photos == numbered_names("i", range(14, -1, -1))
    assert not faces or first.faces[0] == ["f079", "f078"]
    assert [each.cost for each in (first, second, back)] == [(1, 0, 1)] * 3


async def test_a_later_face_does_not_list_its_photo_again_and_is_read_only_if_faces_are_selected(
    served: Served,
) -> None:
    # The first four photos of the list have another face among those of the second page.
    shots = [[number] for number in range(60)]
    for number in range(4):
        shots[59 - number].append(10 + number)
        shots[10 + number] = [100 - number]  # replaces the moved face, at the beginning of the list
    await put_photos(served, shots)
    order = [13, 12, 11, 10][::-1]

    first = await page_of_person(served)
    with_faces = await page_of_person(served, faces=True)
    second = await page_of_person(served, after=first.cursors[-1], faces=True)
    back = await page_of_person(served, last=25, before=second.cursors[0], faces=True)

    assert first.photos == [*numbered_names("i", order), *numbered_names("i", range(59, 38, -1))]
    assert with_faces.faces[4:8] == [[f"f{59 - each:03}", f"f{10 + each:03}"] for each in range(4)]
    assert second.photos == numbered_names("i", range(38, 13, -1))
    assert (back.photos, back.faces) == (with_faces.photos, with_faces.faces)
    assert [each.cost for each in (first, second)] == [(1, 0, 1)] * 2
    assert [each.cost for each in (with_faces, back)] == [(1, 0, 2)] * 2


async def test_many_faces_on_listed_photos_are_skipped_in_few_calls(served: Served) -> None:
    await put_photos(served, [[900 + number, *range(100 + number, 500, 10)] for number in range(10)] + [[0]])
    first = await page_of_person(served, first=10)

    last = await page_of_person(served, first=1, after=first.cursors[-1])

    assert (last.photos, last.more) == (["i010"], False)
    assert last.made.count(LIST) <= 8


async def test_persons_faces_and_users_of_the_photos_cost_one_further_batch(served: Served) -> None:
    await put_photos(served, [[number] for number in range(25)])

    answer = await served.ask(
        """{ photosByPerson(personId: "p1") {
          nodes { imageId user { displayName } persons { name } faces { faceId person { name } photo { imageId } } }
          edges { faces { faceId person { name } photo { imageId } } }
        } }"""
    )

    assert answer.errors is None
    assert answer.made == [BATCH, BATCH, LIST]
    found = answer.data["photosByPerson"]
    shown = [{"faceId": "f024", "person": {"name": "Ada"}, "photo": {"imageId": "i024"}}]
    assert found["edges"][0] == {"faces": shown}
    assert found["nodes"][0] == {
        "imageId": "i024",
        "user": {"displayName": "ada"},
        "persons": [{"name": "Ada"}],
        "faces": shown,
    }


async def test_photos_of_a_list_of_persons_are_one_batch(served: Served) -> None:
    people = [person(f"p{number}") for number in range(5)]
    faces = [face(f"f{number:02}", f"i{number:02}", f"p{number % 5}") for number in range(15)]
    photos = [tagged(photo(f"i{number:02}"), [faces[number]], people[number % 5]) for number in range(15)]
    await put_library_items(served, *people, *faces, *photos)

    answer = await served.ask("{ persons { nodes { photos { nodes { imageId persons { name } } } } } }")

    assert answer.errors is None
    assert answer.data["persons"]["nodes"][4]["photos"]["nodes"] == [
        {"imageId": image_id, "persons": [{"name": "P4"}]} for image_id in ("i14", "i09", "i04")
    ]
    assert answer.made == [BATCH, BATCH, "Query sparks.entityType-PK-index", *[LIST] * 5]


# Items of other programs


async def test_the_photo_of_each_old_face_is_queried_with_limited_concurrency(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put_photos(served, [[number] for number in range(25)], at=None)
    most = queries_at_once(served, monkeypatch)

    found = await page_of_person(served)

    assert found.photos == numbered_names("i", range(24, -1, -1))
    assert found.cost == (1, 25, 0)
    assert max(most) == CONCURRENCY


async def test_photos_of_old_faces_are_queried_while_the_batch_reads_the_others(served: Served) -> None:
    photos, faces = [], []
    for number in range(25):
        # It is enough if one of two faces on a photo has the photo's key.
        ages = [(2 * number, number % 5 != 0), (2 * number + 1, number % 5 == 1)]
        photo_faces = [
            face(f"f{each:03}", f"i{number:03}", "p1", **({} if new else {"at": None})) for each, new in ages
        ]
        faces += photo_faces
        photos.append(tagged(photo(f"i{number:03}"), photo_faces, ADA))
    await put_library_items(served, ADA, *photos, *faces)

    await put_library_items(served, {**faces[0], "photoSK": 5})

    found = await page_of_person(served, faces=True)

    assert found.photos == numbered_names("i", range(24, -1, -1))
    assert found.faces[0] == ["f049", "f048"]
    assert found.cost == (1, 5, 1)


async def test_photos_without_a_list_of_faces_cost_one_further_query_except_on_the_first_page(served: Served) -> None:
    await put_photos(served, [[0], [1, 20], *[[number] for number in range(2, 12)]], with_face_lists=False)

    pages = await pages_forward(served, 3)
    with_faces = await pages_forward(served, 3, faces=True)
    back = await pages_backward(served, 3, faces=True)

    assert photos_of(pages) == photos_of(back) == ["i001", *numbered_names("i", range(11, 1, -1)), "i000"]
    assert [each.cost for each in pages] == [(1, 0, 1), *[(2, 0, 1)] * 3]
    # If `faces` are selected, later faces are read, too: one further Query, except at the end.
    assert with_faces[0].faces == [["f020", "f001"], ["f011"], ["f010"]]
    assert [each.cost for each in with_faces] == [(2, 0, 1), (3, 0, 1), (2, 0, 1), (2, 0, 1)]
    assert [faces for each in back for faces in each.faces] == [faces for each in with_faces for faces in each.faces]


async def test_photos_before_a_cursor_are_read_to_the_end(served: Served) -> None:
    heavy = {"left": 0.1, "top": 0.1, "width": 0.2, "height": 0.2, "note": "x" * 390_000}
    shots = [photo(f"i{number}") for number in range(4)]
    # Every photo has a face among the first four and one among the last four.
    faces = [face(f"f{number}", f"i{number % 4}", "p1", boundingBox=heavy) for number in range(8)]
    for each in faces:
        await put_library_items(served, each)
    await put_library_items(served, ADA, *shots)

    first = await page_of_person(served, first=3)
    second = await page_of_person(served, first=3, after=first.cursors[-1])
    last = await page_of_person(served, last=3)

    assert (first.photos, second.photos, last.photos) == (["i3", "i2", "i1"], ["i0"], ["i2", "i1", "i0"])


async def test_a_photo_that_lists_one_of_two_faces_has_the_position_of_that_one(served: Served) -> None:
    shots = [photo(f"i{number}") for number in range(3)]
    on_it = {number: face(f"f{number}", f"i{number % 3}", "p1") for number in range(6)}
    # No photo lists the face that was stored last.
    photos = [tagged(shots[0], [on_it[0]], ADA), tagged(shots[1], [on_it[4]], ADA), tagged(shots[2], [])]
    await put_library_items(served, ADA, *photos, *on_it.values())

    results = [await walk(served, size) for walk in (pages_forward, pages_backward) for size in (1, 2, 5)]

    assert [photos_of(pages) for pages in results] == [["i2", "i1", "i0"]] * 6


async def test_a_photo_that_lists_a_deleted_face_has_the_position_of_the_next_one(served: Served) -> None:
    photos = await put_photos(served, [[0, 4], [1], [2]])
    gone = [face("f009", "i000", "p1"), face("f000", "i000", "p1"), face("f004", "i000", "p1")]
    await put_library_items(served, tagged(photos[0], gone, ADA))

    found = await page_of_person(served, faces=True)

    assert found.photos == ["i000", "i002", "i001"]
    assert found.faces[0] == ["f004", "f000"]


async def test_a_face_that_now_belongs_to_another_person_is_not_shown(served: Served) -> None:
    shots = [[number] for number in range(1, 80)]
    shots[-1].append(0)
    await put_photos(served, shots)
    await put_library_items(served, face("f000", "i078", "p2"))

    found = await page_of_person(served, faces=True, first=1)

    assert (found.photos, found.faces) == (["i078"], [["f079"]])


async def test_faces_of_deleted_photos_are_omitted_and_the_page_is_full(served: Served) -> None:
    await put_photos(served, [[2 * number] for number in range(20)])
    await put_library_items(served, *(face(f"f{2 * number + 1:03}", f"gone{number}", "p1") for number in range(20)))

    pages = await pages_forward(served, 7)
    back = await pages_backward(served, 7)

    assert photos_of(pages) == photos_of(back) == numbered_names("i", range(19, -1, -1))
    assert not pages[0].less


async def test_a_damaged_photo_is_an_error_in_its_own_place(served: Served) -> None:
    await put_photos(served, [[0, 3], [1], [2]])
    broken = {**photo("i001"), "createdAt": "soon"}
    await put_library_items(
        served, broken, face("f003", "i000", "p1", boundingBox="here"), {**face("f9", "", "p1"), "SK": "IMAGE#"}
    )

    answer = await served.ask(
        """{ photosByPerson(personId: "p1") {
          edges { cursor node { imageId } faces { faceId } } pageInfo { hasNextPage }
        } }"""
    )

    edges = answer.data["photosByPerson"]["edges"]
    assert [edge["node"] for edge in edges] == [{"imageId": "i000"}, {"imageId": "i002"}, None]
    assert [edge["faces"] for edge in edges] == [[None, {"faceId": "f000"}], [{"faceId": "f002"}], [{"faceId": "f001"}]]
    assert sorted(error["path"] for error in answer.errors or ()) == [
        ["photosByPerson", "edges", 0, "faces", 0],
        ["photosByPerson", "edges", 2, "node"],
    ]
    assert answer.codes == ["INTERNAL", "INTERNAL"]


# Arguments


async def test_a_cursor_is_valid_for_its_own_list_only(served: Served) -> None:
    await put_photos(served, [[number] for number in range(3)])
    await put_library_items(served, person("p2"), face("f9", "i000", "p2"))
    cursor = (await page_of_person(served, first=1)).cursors[0]
    photos_field = 'query ($after: String) { person(id: "p1") { photos(after: $after) { nodes { imageId } } } }'

    refused = [
        await served.ask(PAGE.replace("FACES", ""), {"person": "p2", "after": cursor}),
        await served.ask(PAGE.replace("FACES", ""), {"person": "p1", "after": cursor, "order": "ASCENDING"}),
        await served.ask(PAGE.replace("FACES", ""), {"person": "p1", "after": cursor[:-1] + "A"}),
        await served.ask(photos_field, {"after": cursor}),
    ]

    assert [each.codes for each in refused] == [["BAD_CURSOR"]] * 4
    assert (await page_of_person(served, after=cursor)).photos == ["i001", "i000"]


async def test_the_photos_field_of_a_person_is_paged_in_the_same_way(served: Served) -> None:
    await put_photos(served, [[number] for number in range(3)])
    query = """query ($before: String) { person(id: "p1") {
      photos(last: 2, before: $before, order: ASCENDING) {
        edges { node { imageId } faces { faceId } } pageInfo { startCursor hasPreviousPage }
      }
    } }"""

    last = (await served.ask(query)).data["person"]["photos"]
    rest = (await served.ask(query, {"before": last["pageInfo"]["startCursor"]})).data["person"]["photos"]

    assert last["edges"] == [
        {"node": {"imageId": f"i00{number}"}, "faces": [{"faceId": f"f00{number}"}]} for number in (1, 2)
    ]
    assert [edge["node"]["imageId"] for edge in rest["edges"]] == ["i000"]
    assert (last["pageInfo"]["hasPreviousPage"], rest["pageInfo"]["hasPreviousPage"]) == (True, False)


async def test_an_unknown_person_has_no_photos(served: Served) -> None:
    found = await page_of_person(served, "nobody")

    assert (found.photos, found.more, found.less, found.made) == ([], False, False, [LIST])


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ('personId: ""', "personId"),
        (f'personId: "{"x" * 101}"', "personId"),
        ('personId: "p1", first: 101', "first"),
    ],
)
async def test_impossible_arguments_are_refused_by_name(served: Served, arguments: str, field: str) -> None:
    answer: Answer = await served.ask(f"{{ photosByPerson({arguments}) {{ nodes {{ imageId }} }} }}")

    assert answer.codes == ["BAD_USER_INPUT"]
    assert (answer.errors or [])[0]["extensions"]["field"] == field
    assert answer.made == []


# Random faces on random photos


Shot = tuple[str, list[str]]


@dataclass(frozen=True)
class ExpectedPhotos:
    """The expected lists of random faces of two persons on a few photos."""

    faces: list[dict[str, Any]]
    photos: list[dict[str, Any]]

    def list_of(self, person_id: str, order: str) -> list[Shot]:
        """Return each photo with the person's faces on it, in the order of the list."""
        descending = order == "DESCENDING"
        shots: dict[str, Shot] = {}
        for shot in self.photos:
            own = sorted(self._faces_on(shot, person_id), reverse=descending)
            if own:
                # Faces that the photo lists come before those that it does not list.
                first = next((each for each in own if each in listed_face_ids(shot)), own[0])
                shots[first] = (shot["imageId"], own)
        return [shots[first] for first in sorted(shots, reverse=descending)]

    def _faces_on(self, shot: Item, person_id: str) -> list[str]:
        on_it = [each for each in self.faces if each["imageId"] == shot["imageId"]]
        return [face_id(each) for each in on_it if each["personId"] == person_id]

    @property
    def partly_listed(self) -> set[str]:
        """The ids of the photos that list only some of the faces on them."""
        return {
            shot["imageId"]
            for shot in self.photos
            if 0 < len(listed_face_ids(shot)) < sum(each["imageId"] == shot["imageId"] for each in self.faces)
        }


def listed_face_ids(shot: Item) -> set[str]:
    return {each["faceId"] for each in shot.get("faces", ())}


def face_id(item: Item) -> str:
    return str(item["PK"]).removeprefix("FACE#")


def random_photos(rng: random.Random) -> ExpectedPhotos:
    places = [f"i{number:02}" for number in range(rng.randint(1, 9))]
    faces = [
        face(
            f"f{number:02}",
            rng.choice([*places, "gone"]),
            rng.choice(("p1", "p1", "p2")),
            **({"at": None} if rng.random() < 0.3 else {}),
        )
        for number in rng.sample(range(60), rng.randint(1, 24))
    ]
    photos = []
    for image_id in places:
        on_it = [each for each in faces if each["imageId"] == image_id]
        known = rng.choice((0, len(on_it), len(on_it), rng.randint(0, len(on_it))))
        photos.append(tagged(photo(image_id), rng.sample(on_it, known)) if known else photo(image_id))
    return ExpectedPhotos(faces, photos)


@pytest.mark.parametrize("seed", range(8))
async def test_pages_of_any_size_in_both_directions_are_the_expected_list(served: Served, seed: int) -> None:
    rng = random.Random(seed)
    library = random_photos(rng)
    await put_library_items(served, person("p1"), person("p2"), *library.faces, *library.photos)

    for person_id in ("p1", "p2"):
        for order in ("ASCENDING", "DESCENDING"):
            expected = library.list_of(person_id, order)
            for walk in (pages_forward, pages_backward):
                pages = await walk(served, rng.randint(1, 6), person_id, order=order, faces=True)
                found = [pair for each in pages for pair in zip(each.photos, each.faces, strict=True)]
                assert [image_id for image_id, _ in found] == [image_id for image_id, _ in expected]
                known = [pair for pair in found if pair[0] not in library.partly_listed]
                assert known == [pair for pair in expected if pair[0] not in library.partly_listed]
