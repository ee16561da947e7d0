"""The tables `feed`, `feed-metrics` and `feed-pipeline`: a module for each kind of item."""

from datastore.keyspace.feeds import (
    comments,
    follows,
    home_feeds,
    leaderboards,
    likes,
    notifications,
    pipeline,
    posts,
    search,
    users,
)
from datastore.keyspace.feeds.table import FEED
from datastore.model.access_patterns import Table, patterns_of

TABLES: tuple[Table, ...] = (FEED, leaderboards.FEED_METRICS, pipeline.FEED_PIPELINE)
PATTERNS = patterns_of(
    users, posts, comments, likes, follows, home_feeds, notifications, leaderboards, search, pipeline
)
