"""Concurrent tags, untags, renames, merges and deletions: every count and every list stays exact."""

import asyncio
import random
from typing import Any

import pytest

from datastore.model.identity import Role
from tests.support.photo_items import ADA, EVE, ask_as, face, person, photo, photo_user, put_library_items
from tests.support.photo_steps import BOX, DELETE, MERGE, RENAME, TAG, UNTAG, assert_consistent, library_items
from tests.support.served import Served

ALLOWED = {"CONFLICT", "NOT_FOUND", "FORBIDDEN"}


class RandomOperations:
    """Random operations of two owners and an admin on a few photos and persons."""

    def __init__(self, served: Served, seed: int) -> None:
        self.served = served
        self.rng = random.Random(seed)
        self.persons = [f"p{number}" for number in range(8)]
        self.owners = {f"i{number}": (ADA, EVE)[number % 2] for number in range(6)}
        self.faces: list[tuple[str, str]] = []
        self.merges: list[tuple[str, str]] = []
        self.names = 0
        self.codes: dict[str, int] = {}

    async def begin(self) -> None:
        """Store photos and persons.

        Another program wrote the first two photos, which do not list their faces, and the first two persons, which have
        no count.
        """
        old = [face(f"f{number}", f"i{number % 2}", f"p{number % 3}", None) for number in range(5)]
        self.faces = [(item["PK"].removeprefix("FACE#"), item["imageId"]) for item in old]
        photos = [photo(id, email, personNames={}, faces=[]) for id, email in self.owners.items()]
        for item in photos[:2]:
            del item["personNames"], item["faces"]
            item["persons"] = sorted({on_it["personId"] for on_it in old if on_it["imageId"] == item["imageId"]})
        persons = [person(id) for id in self.persons]
        del persons[0]["faceCount"], persons[1]["faceCount"]
        persons[2]["faceCount"] = 1
        users = [photo_user(email, uploadCount=list(self.owners.values()).count(email)) for email in (ADA, EVE)]
        await put_library_items(self.served, *users, *photos, *persons, *old)

    async def step(self) -> None:
        kind = self.rng.choices(("tag", "untag", "rename", "merge", "delete"), (10, 5, 3, 1, 0.3))[0]
        answer = await getattr(self, f"_{kind}")()
        for code in answer.codes if answer is not None else ():
            assert code in ALLOWED, answer.errors
            self.codes[code] = self.codes.get(code, 0) + 1

    async def _tag(self) -> Any:
        image_id = self.rng.choice(list(self.owners))
        given = {"personId": self.rng.choice(self.persons), "boundingBox": BOX}
        answer = await ask_as(self.served, TAG, self.owners[image_id], image=image_id, input=given)
        if answer.errors is None:
            self.faces.append((answer.data["tagFace"]["faceId"], image_id))
        return answer

    async def _untag(self) -> Any:
        if not self.faces:
            return None
        face_id, image_id = self.rng.choice(self.faces)
        return await ask_as(self.served, UNTAG, self.owners[image_id], face=face_id, image=image_id)

    async def _rename(self) -> Any:
        self.names += 1
        person_id, given = self.rng.choice(self.persons), {"name": f"Name {self.names % 7}"}
        return await ask_as(self.served, RENAME, role=Role.ADMIN, id=person_id, input=given)

    async def _merge(self) -> Any:
        pair = self.rng.sample(self.persons, 2)
        self.merges.append((pair[0], pair[1]))
        return await ask_as(self.served, MERGE, role=Role.ADMIN, one=pair[0], into=pair[1])

    async def _delete(self) -> Any:
        return await ask_as(self.served, DELETE, self.owners[id := self.rng.choice(list(self.owners))], id=id)

    async def end(self) -> None:
        """Request unfinished merges again: those with conflicts, and those of persons without a count."""
        self.served.clock.forward(minutes=11)
        for _ in range(3):
            for item in await library_items(self.served, "PERSON"):
                if "mergedInto" in item:
                    ids = {"one": item["personId"], "into": item["mergedInto"]}
                    await ask_as(self.served, MERGE, role=Role.ADMIN, **ids)


async def play_rounds(served: Served, seed: int, rounds: int, at_once: int) -> RandomOperations:
    game = RandomOperations(served, seed)
    await game.begin()
    for _ in range(rounds):
        await asyncio.gather(*[game.step() for _ in range(at_once)])
    await game.end()
    await assert_consistent(served)
    return game


@pytest.mark.proof
@pytest.mark.parametrize("seed", [1, 2])
async def test_counts_and_lists_are_exact_after_random_concurrent_operations(served: Served, seed: int) -> None:
    game = await play_rounds(served, seed, rounds=4, at_once=8)

    assert game.faces
