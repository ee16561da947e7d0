"""The tables `feed`, `feed-metrics` and `feed-pipeline`: a module for each kind of item."""

from datastore.keyspace.feeds import (
    comments,
    engagement,
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
from datastore.model.access_patterns import AccessPattern, Table

TABLES: tuple[Table, ...] = (FEED, leaderboards.FEED_METRICS, pipeline.FEED_PIPELINE)
PATTERNS: tuple[AccessPattern, ...] = (
    *users.PATTERNS,
    *posts.PATTERNS,
    *comments.PATTERNS,
    *likes.PATTERNS,
    *follows.PATTERNS,
    *home_feeds.PATTERNS,
    *notifications.PATTERNS,
    *engagement.PATTERNS,
    *leaderboards.PATTERNS,
    *search.PATTERNS,
    *pipeline.PATTERNS,
)
