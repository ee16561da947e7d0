"""Whom a mention is for."""

import asyncio

from datastore.feeds.visibility import Viewer, Visibility, VisibilityPolicy
from datastore.keyspace.feeds import notifications as keys
from datastore.keyspace.feeds import users
from datastore.session.store import Store


class Recipients:
    """One method for each access pattern."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def may_be_told(self, user_id: str, author_id: str, visibility: Visibility) -> bool:
        """FEED-P6: whether there is such a user, who may see a post of that author."""
        sight = VisibilityPolicy(self._store, Viewer(user_id))
        user, sees = await asyncio.gather(
            self._store.get(keys.RECIPIENT, users.user(user_id)),
            sight.allows(author_id, visibility, keys.RECIPIENT),
        )
        return user is not None and sees
