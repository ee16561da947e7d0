"""Counters: likes and comments of posts, posts and follows of users, authors by month, and tags by hour and day.

All writes of a stream record are one exactly-once effect. The leaderboards are refreshed afterwards, also if the marks
show that the effects were applied before: the process that applied them may have ended before it refreshed.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime

from datastore.change_streams import exactly_once as effects
from datastore.change_streams.change import Change
from datastore.change_streams.exactly_once import Effect, Write
from datastore.feeds.change_completion import complete_changes, foreign_tag
from datastore.feeds.comments import Comment, added_comment, deleted_comment
from datastore.feeds.count_marks import HANDLER, counted_change
from datastore.feeds.follows import Follow, is_following
from datastore.feeds.leaderboards import Counted, LeaderboardSnapshots, author_month, tag_windows
from datastore.feeds.likes import Like, is_like
from datastore.feeds.posts import Post, created_post, deleted_post
from datastore.feeds.visibility import Visibility
from datastore.keyspace.feeds import leaderboards, posts, users
from datastore.keyspace.feeds.leaderboards import FEED_METRICS
from datastore.keyspace.feeds.pipeline import CONSUMER_TABLE
from datastore.keyspace.feeds.table import FEED
from datastore.session.store import Store
from pipelines.feeds.leaderboard_refresh import LeaderboardRefresh, Period

STEPS = {"INSERT": 1, "REMOVE": -1}


class Counters:
    """The handler that counts. `uniform` is the jitter of its backoff."""

    name = HANDLER

    def __init__(
        self,
        open_store: Callable[[], Store],
        now: Callable[[], datetime],
        *,
        uniform: Callable[[], float] = random.random,
    ) -> None:
        self._open_store = open_store
        self._now = now
        self._leaderboards = LeaderboardRefresh(uniform=uniform)

    async def handle(self, changes: Sequence[Change]) -> None:
        now = self._now()
        changes = await complete_changes(self._open_store, changes)
        counted = [counted_change(change, writes) for change in changes if (writes := writes_of(change, now))]
        if not counted:
            return
        store = self._open_store()
        await effects.apply(store, CONSUMER_TABLE, counted, now)
        await self._leaderboards.refresh(LeaderboardSnapshots(store), _changed_names(counted))


def _changed_names(counted: Sequence[Effect]) -> dict[Period, set[str]]:
    """Return the names whose counts may have changed, by period."""
    changed: dict[Period, set[str]] = defaultdict(set)
    for write in (write for effect in counted for write in effect.writes):
        if write.table is FEED_METRICS:
            kind, period, *_, name = leaderboards.counters.parts(write.key)
            changed[kind, period].add(name)
    return changed


def writes_of(change: Change, now: datetime) -> list[Write]:
    """Return the writes that a change adds to the counters."""
    if (post := created_post(change)) is not None:
        return _of_post(post, 1, now)
    if (post := deleted_post(change)) is not None:
        return _of_post(post, -1, now)
    if (comment := added_comment(change)) is not None:
        return _of_engagement(comment, comment.author_id, "comments", 1)
    if (comment := deleted_comment(change)) is not None:
        return _of_engagement(comment, comment.author_id, "comments", -1)
    step = STEPS.get(change.kind, 0)
    item = change.new if step > 0 else change.old
    if not step or item is None:
        return []
    if is_like(change.keys):
        like = Like.decoder(item)
        return _of_engagement(like, like.user_id, "likes", step)
    if is_following(change.keys):
        return _of_follow(Follow.decoder(item), step)
    if (tag := foreign_tag(change, item)) is not None:
        return tag_windows(tag[:1], tag[1], step, now)
    return []


def _of_post(post: Post, step: int, now: datetime) -> list[Write]:
    """Return the writes for a post. Private posts do not count; leaderboards count public posts only."""
    if post.visibility is Visibility.PRIVATE:
        return []
    counted = [_user(post.author_id, "posts", step)]
    if post.visibility is Visibility.PUBLIC:
        counted.append(author_month(post.author_id, post.created_at, "posts", step))
        counted += tag_windows(post.tags, post.created_at, step, now)
    return counted


def _of_engagement(engagement: Like | Comment, user_id: str, counted: Counted, step: int) -> list[Write]:
    """Return the writes for a user's like or comment. It counts for the author's month if another's post is public."""
    writes = [Write(FEED, posts.post(engagement.post_id), add={counted: step}, only_if=posts.NOT_DELETED)]
    author_id = engagement.post_author
    if engagement.post_visibility is Visibility.PUBLIC and author_id is not None and user_id != author_id:
        writes.append(author_month(author_id, engagement.created_at, counted, step))
    return writes


def _of_follow(follow: Follow, step: int) -> list[Write]:
    return [_user(follow.follower_id, "following", step), _user(follow.followee_id, "followers", step)]


def _user(user_id: str, counted: str, step: int) -> Write:
    return Write(FEED, users.user(user_id), add={counted: step}, only_if=users.USER_EXISTS)
