"""The links between the three users: of the feed, of the photo library, and as a reporter of sightings."""

from typing import Any

import pytest

from datastore.model.identity import Role
from tests.support.feed_items import user_item
from tests.support.home_feeds import put_feed_items
from tests.support.photo_items import ADA, EVE, photo_user, put_library_items, user_id
from tests.support.served import Answer, Served

REPORT = """mutation { reportSighting(input: { area: "Downtown", category: "Food Truck", description: "Tacos" }) {
  sightingId } }"""
NO_ONE = {"photoUser": None}


@pytest.fixture
async def linked(served: Served) -> Served:
    """Return a gateway on which Ada and Eve have a user in each system. Their user ids are `ada` and `eve`."""
    await put_feed_items(served, user_item("ada"), user_item("eve"))
    await put_library_items(served, photo_user(), photo_user(EVE))
    category = (await served.ask("{ areas categories }")).data
    report = REPORT.replace("Downtown", category["areas"][0]).replace("Food Truck", category["categories"][0])
    for user in ("ada", "eve"):
        assert (await served.ask(report, user=user)).errors is None
    return served


async def ask_with_email(served: Served, text: str, user: str | None = "ada", email: str | None = ADA) -> Answer:
    answer = await served.ask(text, user=user, email=email)
    assert answer.errors is None, answer.errors
    return answer


async def test_each_of_the_callers_users_links_to_the_two_others(linked: Served) -> None:
    own = user_id(linked, ADA)
    ada: dict[str, Any] = {"photoUser": {"userId": own, "email": ADA}}

    answer = await ask_with_email(
        linked,
        f"""{{
          user(id: "ada") {{ photoUser {{ userId email }} userProfile {{ userId }} }}
          userProfile(id: "ada") {{ photoUser {{ userId email }} user {{ userId }} }}
          photoUser(id: "{own}") {{ user {{ userId }} userProfile {{ userId }} }}
        }}""",
    )

    assert answer.data == {
        "user": ada | {"userProfile": {"userId": "ada"}},
        "userProfile": ada | {"user": {"userId": "ada"}},
        "photoUser": {"user": {"userId": "ada"}, "userProfile": {"userId": "ada"}},
    }
    # The three users, and no further read: each link leads to an item of the first batch.
    assert answer.made == ["BatchGetItem blip+feed+sparks"]


@pytest.mark.parametrize(
    ("user", "email"), [("eve", EVE), (None, None), ("ada", None)], ids=["stranger", "anonymous", "no email"]
)
async def test_other_callers_do_not_learn_which_users_are_the_same_person(
    linked: Served, user: str | None, email: str | None
) -> None:
    text = f"""{{
      user(id: "ada") {{ photoUser {{ userId }} }}
      userProfile(id: "ada") {{ photoUser {{ userId }} }}
      photoUser(id: "{user_id(linked, ADA)}") {{ user {{ userId }} userProfile {{ userId }} }}
    }}"""

    answer = await ask_with_email(linked, text, user, email)

    assert answer.data == {"user": NO_ONE, "userProfile": NO_ONE, "photoUser": {"user": None, "userProfile": None}}
    assert answer.made == ["BatchGetItem blip+feed+sparks"]


async def test_an_admin_sees_the_links_of_the_admin_only(linked: Served) -> None:
    answer = await linked.ask('{ user(id: "ada") { photoUser { userId } } }', user="eve", role=Role.ADMIN, email=EVE)

    assert answer.data == {"user": NO_ONE}


async def test_the_links_of_a_list_take_one_point_read(linked: Served) -> None:
    text = "{ photoUsers { nodes { user { userId } } } }"

    answer = await linked.ask(text, user="ada", role=Role.ADMIN, email=ADA)

    assert sorted(map(str, answer.data["photoUsers"]["nodes"])) == ["{'user': None}", "{'user': {'userId': 'ada'}}"]
    assert answer.made == ["GetItem feed", "Query sparks.entityType-PK-index"]


async def test_a_user_without_the_other_two_has_no_links(served: Served) -> None:
    await put_feed_items(served, user_item("ada"))

    answer = await ask_with_email(served, '{ user(id: "ada") { photoUser { userId } userProfile { userId } } }')

    assert answer.data == {"user": {"photoUser": None, "userProfile": None}}
    assert answer.made == ["BatchGetItem blip+sparks", "GetItem feed"]


async def test_the_estimate_counts_the_point_read_of_a_link(linked: Served) -> None:
    estimates: list[float] = []
    for selection in ("userId", "userId photoUser { userId }"):
        await ask_with_email(linked, f'{{ user(id: "ada") {{ {selection} }} }}')
        estimates.append(linked.reports[-1].estimate)

    assert estimates[1] == estimates[0] + 0.5
