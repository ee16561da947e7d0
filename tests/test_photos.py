"""Photos and what is read with them: SPARKS-1 … SPARKS-6, as this gateway writes them and as others did."""

from conftest import Served
from photo_items import face, person, photo, put, tagged, user


async def test_a_page_with_persons_and_faces_is_one_query_and_one_batch(served: Served) -> None:
    people = [person(f"p{number:02}") for number in range(12)]
    photos, faces = [], []
    for number in range(25):
        image_id = f"i{number:02}"
        shown = [people[number % 12], people[(number + 1) % 12]]
        on_it = [face(f"f{number:02}{place}", image_id, who["personId"]) for place, who in enumerate(shown)]
        photos.append(tagged(photo(image_id), on_it, *shown))
        faces += on_it
    await put(served, user(), *people, *photos, *faces)

    answer = await served.ask(
        """{ photos { nodes {
          imageId user { displayName } persons { name } faces { faceId person { name } photo { imageId } }
        } } }"""
    )

    assert answer.errors is None
    nodes = answer.data["photos"]["nodes"]
    assert [node["imageId"] for node in nodes] == [f"i{number:02}" for number in reversed(range(25))]
    assert nodes[0] == {
        "imageId": "i24",
        "user": {"displayName": "ada"},
        "persons": [{"name": "P00"}, {"name": "P01"}],
        "faces": [
            {"faceId": f"f24{place}", "person": {"name": f"P0{place}"}, "photo": {"imageId": "i24"}} for place in (0, 1)
        ],
    }
    assert answer.made[-1] == "Query sparks.entityType-PK-index"
    assert len(answer.made) == 2
