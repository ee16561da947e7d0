"""Operations that read far more than was estimated are stopped, whatever the estimate missed."""

import pytest

from datastore.dynamodb.calls import Call
from datastore.dynamodb.requests import PreparedRequest
from datastore.errors import BadUserInput
from datastore.keyspace.feeds import posts as keys
from datastore.keyspace.feeds.table import FEED
from datastore.model.identity import Role
from datastore.session.metering import Meter, ReadTooMuch
from server.documents.settings import DocumentSettings
from server.settings import Settings
from tests.support.served import NOON, SECRET, UNBOUGHT, Served
from tests.support.store_engines import free_port

FIRST = '{ areas postsByTag(tag: "cats", first: 1) { nodes { text } pageInfo { hasNextPage } } }'
POSTS = 400
# At most half of what any may cost, and twice its estimate: a Query and the post, one and a half units in all.
LIMIT = 50.0 + 2 * 1.0


@pytest.fixture
def settings() -> Settings:
    documents = DocumentSettings(max_cost=100.0)
    return Settings(secret=SECRET, port=free_port(), poll_interval=0.02, documents=documents, capacity=UNBOUGHT)


async def hide(served: Served, posts: int) -> None:
    """Posts with a tag, each by another author, for followers."""
    items = []
    for number in range(posts):
        key = keys.tag(f"p{number}", "cats")
        items.append(
            {
                "PK": key.partition,
                "SK": key.sort,
                "GSI2PK": keys.by_tag("cats"),
                "GSI2SK": keys.position(NOON, f"p{number:04}"),
                "author_id": f"author{number}",
                "visibility": "followers",
                "text": "Hello #cats",
            }
        )
    await served.store().write_all(FEED, puts=items)


async def test_a_list_of_which_nearly_nothing_is_shown_is_not_read_to_its_end(served: Served) -> None:
    await hide(served, POSTS)

    answer = await served.ask(FIRST, user="nobody")

    assert answer.codes == ["BAD_USER_INPUT"]
    assert answer.data is None  # also of the field that had its value
    assert answer.errors is not None
    (error,) = answer.errors
    read = sum(call.cost for call in answer.calls)
    assert error["extensions"] == {"code": "BAD_USER_INPUT", "read": round(read, 1), "limit": LIMIT}
    assert "was stopped" in error["message"]
    # It is not asked for more once that much is read: the last wave is four times as large as the one before.
    assert LIMIT <= read < 2 * LIMIT
    # Operators see all posts, and read no follows.
    seen = await served.ask(FIRST, user="root", role=Role.ADMIN)
    assert seen.data["postsByTag"] == {"nodes": [{"text": "Hello #cats"}], "pageInfo": {"hasNextPage": True}}


async def test_pages_are_full_within_the_limit(served: Served) -> None:
    await hide(served, 60)

    answer = await served.ask(FIRST, user="nobody")

    assert answer.data["postsByTag"] == {"nodes": [], "pageInfo": {"hasNextPage": False}}
    assert sum(call.cost for call in answer.calls) > 30


def call(operation: str, units: float) -> Call:
    return Call(operation, PreparedRequest(b"{}", ("t",)), units=units)


def test_what_was_begun_is_written_to_its_end() -> None:
    meter = Meter()
    meter.limit = 10.0
    meter.completes_writes = True
    meter.record(call("Query", 11.0))

    meter.check_limit("UpdateItem")
    with pytest.raises(ReadTooMuch) as stopped:
        meter.check_limit("Query")
    assert isinstance(stopped.value, BadUserInput)
    assert meter.stop_error is stopped.value
    meter.record(call("UpdateItem", 1.0))
    meter.check_limit("Query")


def test_each_event_of_a_subscription_may_read_as_much() -> None:
    meter = Meter()
    meter.limit = 10.0
    meter.record(call("Query", 10.0))
    with pytest.raises(ReadTooMuch):
        meter.check_limit("GetItem")

    meter.take()

    meter.check_limit("GetItem")
