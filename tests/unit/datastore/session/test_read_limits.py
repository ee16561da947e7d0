"""Operations that read far more than their estimate are stopped."""

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
from tests.support.ports import free_port
from tests.support.served import NOON, SECRET, UNBOUGHT, Served

FIRST = '{ areas postsByTag(tag: "cats", first: 1) { nodes { text } pageInfo { hasNextPage } } }'
POSTS = 400
# Half of the maximum cost, plus twice the estimate: a Query and the post, 1.5 units together.
LIMIT = 50.0 + 2 * 1.0


@pytest.fixture
def settings() -> Settings:
    documents = DocumentSettings(max_cost=100.0)
    return Settings(secret=SECRET, port=free_port(), poll_interval=0.02, documents=documents, capacity=UNBOUGHT)


async def hide(served: Served, posts: int) -> None:
    """Write posts with a tag, each by another author and for followers only."""
    items = []
    for number in range(posts):
        key = keys.tag(f"p{number}", "cats")
        items.append(
            {
                "PK": key.partition,
                "SK": key.sort,
                "GSI2PK": keys.post_by_tag.partition_of("cats"),
                "GSI2SK": keys.post_by_tag("cats", NOON, f"p{number:04}").sort,
                "author_id": f"author{number}",
                "visibility": "followers",
                "text": "Hello #cats",
            }
        )
    await served.store().write_all(FEED, puts=items)


async def test_a_list_with_hardly_any_visible_post_is_not_read_to_its_end(served: Served) -> None:
    await hide(served, POSTS)

    answer = await served.ask(FIRST, user="nobody")

    assert answer.codes == ["BAD_USER_INPUT"]
    assert answer.data is None  # also of the field that already had its value
    assert answer.errors is not None
    (error,) = answer.errors
    read = sum(call.cost for call in answer.calls)
    assert error["extensions"] == {"code": "BAD_USER_INPUT", "read": round(read, 1), "limit": LIMIT}
    assert "was stopped" in error["message"]
    # The list sends no more reads above the limit. The last wave is four times as large as the one before.
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
    return Call(operation, PreparedRequest(b"{}", ("t",)), units=units, cost=units)


def test_writes_that_have_begun_are_completed() -> None:
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


def test_each_event_of_a_subscription_has_its_own_limit() -> None:
    meter = Meter()
    meter.limit = 10.0
    meter.record(call("Query", 10.0))
    with pytest.raises(ReadTooMuch):
        meter.check_limit("GetItem")

    meter.take()

    meter.check_limit("GetItem")
