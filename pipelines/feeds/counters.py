"""Counts: of likes and comments on posts, of a user's posts and followers, of authors' months and tags' hours.

All that a record changes is one effect under one mark. The boards are renewed after that, also when the marks told that
all was applied before: whoever did it may not have come so far.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime

from datastore.change_streams import exactly_once as effects
from datastore.change_streams.exactly_once import Effect, Write
from datastore.change_streams.shards.stream_reader import Change
from datastore.feeds.change_completion import completed, tagged
from datastore.feeds.comments import Comment, commented, uncommented
from datastore.feeds.engagement_counters import Counted, author_month, tag_windows
from datastore.feeds.follows import Follow, following_from, is_following
from datastore.feeds.leaderboard_snapshots import Boards
from datastore.feeds.likes import Like, is_like, like_from
from datastore.feeds.posts import Post, deleted, written
from datastore.feeds.visibility import Visibility
from datastore.keyspace.feeds import leaderboards, posts, users
from datastore.keyspace.feeds.leaderboards import FEED_METRICS
from datastore.keyspace.feeds.table import FEED
from datastore.session.store import Store
from pipelines.feeds.leaderboard_refresh import SHOWN, LeaderboardRefresh, Period

STEPS = {"INSERT": 1, "REMOVE": -1}


class Counters:
    """The handler that counts. `uniform` is the chance in its waiting; `shown` how many a board shows."""

    name = "counters"

    def __init__(
        self,
        open_store: Callable[[], Store],
        now: Callable[[], datetime],
        *,
        uniform: Callable[[], float] = random.random,
        shown: int = SHOWN,
    ) -> None:
        self._open_store = open_store
        self._now = now
        self._renewal = LeaderboardRefresh(shown=shown, uniform=uniform)

    async def handle(self, changes: Sequence[Change]) -> None:
        now = self._now()
        changes = await completed(self._open_store, changes)
        counted = [
            Effect(effects.name_of(self.name, change), tuple(writes))
            for change in changes
            if (writes := writes_of(change, now))
        ]
        if not counted:
            return
        store = self._open_store()
        await effects.apply(store, counted, now)
        await self._renewal.renew(Boards(store), _touched(counted))


def _touched(counted: Sequence[Effect]) -> dict[Period, set[str]]:
    """The names whose counts may have changed, by period."""
    touched: dict[Period, set[str]] = defaultdict(set)
    for write in (write for effect in counted for write in effect.writes):
        if write.table is FEED_METRICS:
            kind, period, name = leaderboards.count_parts(write.key)
            touched[kind, period].add(name)
    return touched


def writes_of(change: Change, now: datetime) -> list[Write]:
    """What a change adds to the counts; nothing if it is of no concern."""
    if (post := written(change)) is not None:
        return _of_post(post, 1, now)
    if (post := deleted(change)) is not None:
        return _of_post(post, -1, now)
    if (comment := commented(change)) is not None:
        return _of_answer(comment, "comments", 1)
    if (comment := uncommented(change)) is not None:
        return _of_answer(comment, "comments", -1)
    step = STEPS.get(change.kind, 0)
    item = change.new if step > 0 else change.old
    if not step or item is None:
        return []
    if is_like(change.keys):
        return _of_answer(like_from(item), "likes", step)
    if is_following(change.keys):
        return _of_follow(following_from(item), step)
    if (tag := tagged(change, item)) is not None:
        return tag_windows(tag[:1], tag[1], step, now)
    return []


def _of_post(post: Post, step: int, now: datetime) -> list[Write]:
    """A user's posts are those that others may see; in the open only public ones count."""
    if post.visibility is Visibility.PRIVATE:
        return []
    counted = [_user(post.author_id, "posts", step)]
    if post.visibility is Visibility.PUBLIC:
        counted.append(author_month(post.author_id, post.created_at, "posts", step))
        counted += tag_windows(post.tags, post.created_at, step, now)
    return counted


def _of_answer(answer: Like | Comment, counted: Counted, step: int) -> list[Write]:
    """A like or a comment: it counts for the author's month where the post is public and another's."""
    writes = [Write(FEED, posts.post(answer.post_id), add={counted: step}, only_if=posts.NOT_DELETED)]
    author_id = answer.post_author
    if answer.post_visibility is Visibility.PUBLIC and author_id is not None and answer.user_id != author_id:
        writes.append(author_month(author_id, answer.created_at, counted, step))
    return writes


def _of_follow(follow: Follow, step: int) -> list[Write]:
    return [_user(follow.follower_id, "following", step), _user(follow.followee_id, "followers", step)]


def _user(user_id: str, counted: str, step: int) -> Write:
    return Write(FEED, users.user(user_id), add={counted: step}, only_if=users.IS_THERE)
