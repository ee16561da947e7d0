"""A feed for the demo: invented people, their posts, and a cast that keeps posting.

Everything is written as clients write it. The feed's pipeline then produces the counters, home feeds, leaderboards and
notifications.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta

from datastore.dynamodb.records import readable_records
from datastore.feeds import hashtags as texts
from datastore.feeds.comments import Comments, comment_from
from datastore.feeds.follows import Follows
from datastore.feeds.likes import Likes
from datastore.feeds.notifications import Notifications, notification_from
from datastore.feeds.posts import Post, Posts, post_from
from datastore.feeds.users import Users
from datastore.feeds.visibility import Viewer, Visibility, VisibilityPolicy
from datastore.keyspace.feeds.table import FEED
from datastore.model.access_patterns import Table
from datastore.model.ids import uuid7
from datastore.session.pagination import Span
from datastore.session.store import Store
from pipelines.demo.feeds_cast import (
    CAST,
    COMMENT_TEXTS,
    FOLLOWS,
    NAMES,
    NEWCOMER,
    POST_TEXTS,
    SCRIPT,
    VISITOR,
    ScriptedPost,
)

JOINED, BEFRIENDED = timedelta(days=30), timedelta(days=20)
PAUSE = timedelta(minutes=2)  # between likes, and between comments, of a post
LIVE = "live-"
# Limits per member of the cast, so that a demo that runs for weeks stays small: live posts, comments on one post, and
# unread notifications.
LIVE_POSTS, COMMENTS_EACH, UNREAD = 6, 2, 50
# The items above a limit that one step reads and removes at most.
MORE = 25
# The probability that `live` acts while the table has no subscriber.
QUIET = 0.1


class FeedDemo:
    """Loads the demo's feed and keeps its cast active. `open_store` returns a new `Store` for each operation."""

    def __init__(
        self,
        open_store: Callable[[], Store],
        *,
        now: Callable[[], datetime],
        new_id: Callable[[], str],
        rng: random.Random,
        has_subscribers: Callable[[Table], bool],
    ) -> None:
        self._open_store = open_store
        self._now = now
        self._new_id = new_id
        self._rng = rng
        self._has_subscribers = has_subscribers

    # Initial data

    async def load(self) -> int:
        """Create the people and their posts of the last days. Return the number of posts, 0 if they already exist.

        All times and ids derive from the time at which the first user joined. If a load is interrupted, the next one
        therefore writes the missing items and changes nothing else.
        """
        store, now = self._open_store(), self._now()
        if await Users(store, now).by_id(NEWCOMER) is not None:
            return 0
        first, *others = [user_id for user_id in NAMES if user_id != NEWCOMER]
        began = min(await self._join(first, now - JOINED) + JOINED, now)
        await asyncio.gather(*[self._join(user_id, began - JOINED) for user_id in others])
        follows = Follows(store, began - BEFRIENDED)
        pairs = [(follower, followee) for follower, named in FOLLOWS.items() for followee in named.split()]
        await asyncio.gather(*[follows.follow(*pair) for pair in pairs])
        await asyncio.gather(*[self._publish(post_id, scripted, began) for post_id, scripted in posts_with_ids()])
        await self._join(NEWCOMER, began)
        return len(SCRIPT)

    async def _join(self, user_id: str, moment: datetime) -> datetime:
        """Create the user, if missing, as of `moment`. Return the time at which the user joined."""
        name, bio = NAMES[user_id]
        user = await Users(self._open_store(), moment).create(user_id, name=name, bio=bio)
        return user.created_at or moment

    async def _publish(self, post_id: str, scripted: ScriptedPost, began: datetime) -> None:
        """Create the post with its likes and comments, `scripted.hours` before `began`."""
        moment = began - timedelta(hours=scripted.hours)
        post = await self._posts(scripted.author, moment).create(
            post_id, author_id=scripted.author, text=scripted.text, visibility=scripted.visibility
        )
        store = self._open_store()
        for number, user_id in enumerate(likers(scripted), start=1):
            await Likes(store, min(moment + number * PAUSE, began)).like(post, user_id)
        for number, (user_id, text) in enumerate(scripted.comments, start=1):
            at = min(moment + number * PAUSE, began)
            comment_id = uuid7(at, f"{post_id} {number}")
            await Comments(store, at).add(post, comment_id, user_id, text, texts.mentions(text))

    # Activity

    async def live(self) -> None:
        """Let a member of the cast post, like, comment or follow, and delete the items above the limits."""
        if not self._has_subscribers(FEED) and self._rng.random() >= QUIET:
            return
        [act] = self._rng.choices((self._post, self._like, self._comment, self._follow), (25, 40, 25, 10))
        actor = self._rng.choice(CAST)
        await act(actor)
        for user_id in (actor, VISITOR):
            await self._mark_old_notifications_read(user_id)

    async def _post(self, actor: str) -> None:
        posts = self._posts(actor, self._now())
        [visibility] = self._rng.choices((Visibility.PUBLIC, Visibility.FOLLOWERS), (4, 1))
        text = self._rng.choice(POST_TEXTS)
        await posts.create(LIVE + self._new_id(), author_id=actor, text=text, visibility=visibility)
        page = await posts.by_author(actor, Span(LIVE_POSTS + MORE))
        live_posts = [post for post in readable_records(post_from, page.items) if post.post_id.startswith(LIVE)]
        for post in live_posts[LIVE_POSTS:]:
            await posts.delete(post.post_id, actor)

    async def _like(self, actor: str) -> None:
        """Like a recent post, or remove the actor's like from it: otherwise everybody soon likes every post."""
        post = await self._new_post(actor)
        if post is None:
            return
        likes = Likes(self._open_store(), self._now())
        if await likes.is_liked(post.post_id, actor):
            await likes.unlike(post.post_id, actor)
        else:
            await likes.like(post, actor)

    async def _comment(self, actor: str) -> None:
        post = await self._new_post(actor)
        if post is None:
            return
        now, text = self._now(), self._rng.choice(COMMENT_TEXTS)
        comments = Comments(self._open_store(), now)
        await comments.add(post, uuid7(now, self._new_id()), actor, text, texts.mentions(text))
        page = await comments.of_post(post.post_id, Span(100, backward=True))
        own = [comment for comment in readable_records(comment_from, page.items) if comment.user_id == actor]
        for comment in own[:-COMMENTS_EACH]:
            await comments.delete(post.post_id, comment.comment_id, actor)

    async def _follow(self, actor: str) -> None:
        """Unfollow the visitor, or follow the visitor if the actor does not yet."""
        follows = Follows(self._open_store(), self._now())
        if await follows.unfollow(actor, VISITOR) is None:
            await follows.follow(actor, VISITOR)

    async def _new_post(self, actor: str) -> Post | None:
        """Return one of the two newest posts of an author, usually the visitor, that the actor may see, or None."""
        author = VISITOR if self._rng.random() < 0.6 else self._rng.choice(CAST)
        page = await self._posts(actor, self._now()).by_author(author, Span(2))
        found = readable_records(post_from, page.items)
        return self._rng.choice(found) if found else None

    async def _mark_old_notifications_read(self, user_id: str) -> None:
        notifications = Notifications(self._open_store(), self._now())
        page = await notifications.unread(user_id, Span(UNREAD + MORE))
        for old in readable_records(notification_from, page.items[UNREAD:]):
            await notifications.mark_read(user_id, old.notification_id)

    def _posts(self, viewer: str, now: datetime) -> Posts:
        store = self._open_store()
        return Posts(store, now, VisibilityPolicy(store, Viewer(viewer)))


def posts_with_ids() -> list[tuple[str, ScriptedPost]]:
    """Return the scripted posts with their ids: `<author>-<number>`, counted per author from the newest."""
    counts: Counter[str] = Counter()
    posts = []
    for scripted in SCRIPT:
        counts[scripted.author] += 1
        posts.append((f"{scripted.author}-{counts[scripted.author]}", scripted))
    return posts


def likers(scripted: ScriptedPost) -> list[str]:
    """Return the users who like the post: the first `likes` people after its author in the cast who may see it."""
    people = [*CAST, VISITOR]
    after = people.index(scripted.author) + 1 if scripted.author in people else 0
    others = [user_id for user_id in [*people[after:], *people[:after]] if user_id != scripted.author]
    if scripted.visibility is not Visibility.PUBLIC:
        others = [user_id for user_id in others if scripted.author in FOLLOWS[user_id].split()]
    return others[: scripted.likes]
