"""The handlers of the feed's stream."""

from collections.abc import Callable
from datetime import datetime

from datastore.session.store import Store
from pipelines.consumer.handlers import Handler
from pipelines.feeds.cleanup import CascadeDelete
from pipelines.feeds.counters import Counters
from pipelines.feeds.fan_out import MAX_FOLLOWERS, FanOut
from pipelines.feeds.follow_backfill import FollowBackfill
from pipelines.feeds.follow_edges import FollowEdgeHandler
from pipelines.feeds.notifications import NotificationHandler


def feed_handlers(
    open_store: Callable[[], Store], now: Callable[[], datetime], *, fan_out_bound: int = MAX_FOLLOWERS
) -> list[Handler]:
    """Return the handlers. Authors with more followers than `fan_out_bound` are promoted to fan-out on read."""
    return [
        Counters(open_store, now),
        NotificationHandler(open_store, now),
        FanOut(open_store, now, max_followers=fan_out_bound),
        FollowEdgeHandler(open_store),
        FollowBackfill(open_store, now),
        CascadeDelete(open_store),
    ]
