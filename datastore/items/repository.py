"""Repositories: classes with a method for each access pattern of a kind of items."""

from datetime import datetime

from datastore.session.store import Store


class Repository:
    """The access to items in the session of a request. Writes have the time `now`."""

    def __init__(self, store: Store, now: datetime) -> None:
        self._store = store
        self._now = now
