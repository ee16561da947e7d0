"""Watches of areas, through the API (BLIP-3, BLIP-7)."""

from datastore.model.identity import Role
from tests.support.served import Served

# BLIP-3, BLIP-7


async def test_a_user_creates_lists_and_deletes_watches(served: Served) -> None:
    create = 'mutation { createWatch(input: {area: "Old Town", category: "Cats"}) { id watchId userId createdAt } }'
    created = await served.ask(create, user="ada")
    watch = created.data["createWatch"]

    mine = await served.ask('{ watches(userId: "ada") { id watchId area category } }', user="ada")
    through_me = await served.ask("{ me { watches { id watchId area category } } }", user="ada")
    assert (through_me.data["me"], through_me.made) == (mine.data, mine.made)
    deleted = await served.ask(
        'mutation ($id: ID!) { deleteWatch(area: "Old Town", category: "Cats", watchId: $id) { watchId } }',
        {"id": watch["watchId"]},
        user="ada",
    )
    again = await served.ask(
        'mutation ($id: ID!) { deleteWatch(area: "Old Town", category: "Cats", watchId: $id) { watchId } }',
        {"id": watch["watchId"]},
        user="ada",
    )
    left = await served.ask('{ watches(userId: "ada") { watchId } }', user="ada")

    assert mine.data["watches"] == [
        {"id": watch["id"], "watchId": watch["watchId"], "area": "Old Town", "category": "Cats"}
    ]
    assert [created.made, mine.made, deleted.made] == [["PutItem blip"], ["Query blip"], ["DeleteItem blip"]]
    assert deleted.data == {"deleteWatch": {"watchId": watch["watchId"]}}
    assert again.data == {"deleteWatch": None}
    assert left.data == {"watches": []}


async def test_creating_a_watch_again_returns_the_same_watch(served: Served) -> None:
    create = 'mutation { createWatch(input: {area: "Harbor", category: "Cats"}) { id watchId createdAt } }'

    first = await served.ask(create, user="ada")
    served.clock.forward(hours=1)
    again = await served.ask(create, user="ada")
    others = await served.ask(create, user="eve")

    assert again.data == first.data
    assert others.data["createWatch"]["id"] != first.data["createWatch"]["id"]
    mine = await served.ask('{ watches(userId: "ada") { watchId } }', user="ada")
    assert len(mine.data["watches"]) == 1


async def test_a_user_cannot_read_or_delete_the_watch_of_another(served: Served) -> None:
    create = 'mutation { createWatch(input: {area: "Harbor", category: "Cats"}) { id watchId } }'
    watch = (await served.ask(create, user="ada")).data["createWatch"]
    delete = 'mutation ($id: ID!) { deleteWatch(area: "Harbor", category: "Cats", watchId: $id) { watchId } }'
    by_node = "query ($id: ID!) { node(id: $id) { id } }"

    assert (await served.ask('{ watches(userId: "ada") { watchId } }', user="eve")).codes == ["FORBIDDEN"]
    assert (await served.ask('{ watches(userId: "ada") { watchId } }')).codes == ["UNAUTHENTICATED"]
    assert (await served.ask(by_node, {"id": watch["id"]}, user="eve")).codes == ["FORBIDDEN"]
    assert (await served.ask(by_node, {"id": watch["id"]})).codes == ["UNAUTHENTICATED"]
    assert (await served.ask(delete, {"id": watch["watchId"]}, user="eve")).data == {"deleteWatch": None}
    admins = await served.ask('{ watches(userId: "ada") { watchId } }', user="root", role=Role.ADMIN)
    assert admins.data == {"watches": [{"watchId": watch["watchId"]}]}


async def test_a_new_watch_is_returned_as_it_is_stored(served: Served) -> None:
    served.clock.forward(microseconds=359_609)

    made = await served.ask(
        'mutation { createWatch(input: {area: "Harbor", category: "Cats"}) { watchId createdAt } }', user="ada"
    )
    stored = await served.ask('{ watches(userId: "ada") { watchId createdAt } }', user="ada")

    assert stored.data == {"watches": [made.data["createWatch"]]}
