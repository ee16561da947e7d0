"""Declarations of types with a global id."""

import pytest

from datastore.keyspace.feeds.notifications import NOTIFICATION
from datastore.model.access_patterns import Who
from schema.nodes import Node, node_type


def test_a_type_that_users_read_names_the_owner_of_an_object() -> None:
    assert NOTIFICATION.who is Who.USER

    with pytest.raises(ValueError, match=f"owner of the objects that {NOTIFICATION.id} reads"):

        @node_type(
            object,
            NOTIFICATION,
            parts=("user_id", "notification_id"),
            read=lambda context, *key: context.notifications.by_id(*key),
            description="A notification.",
        )
        class Notice(Node):
            text: str
