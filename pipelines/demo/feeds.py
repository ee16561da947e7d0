"""A feed for the demo: invented people, their posts, and a cast that keeps posting.

Everything is written as clients write it. The feed's pipeline then produces the counters, home feeds, leaderboards and
notifications.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from datastore.dynamodb.records import readable_records
from datastore.feeds import hashtags
from datastore.feeds.comments import Comment, Comments
from datastore.feeds.follows import Follows
from datastore.feeds.likes import Likes
from datastore.feeds.notifications import Notification, Notifications
from datastore.feeds.posts import Post, Posts
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

JOINED_BEFORE, FOLLOWED_BEFORE = timedelta(days=30), timedelta(days=20)
PAUSE = timedelta(minutes=2)  # between likes, and between comments, of a post
LIVE_PREFIX = "live-"  # of the ids of posts that `act` creates
# Limits per member of the cast and for the visitor, so that a demo that runs for weeks stays small: live posts,
# comments on one post, and unread notifications.
MAX_LIVE_POSTS, MAX_COMMENTS_EACH, MAX_UNREAD = 6, 2, 50
# The most items above a limit that one action removes.
MAX_REMOVED = 25
# The probability that `act` does something while the table has no subscriber.
IDLE_PROBABILITY = 0.1


@dataclass(frozen=True, slots=True)
class FeedDemo:
    """Loads the demo's feed and keeps its cast active.

    The visitor is the user of the demo's token. The newcomer is created last: that user marks a complete load.
    """

    #: Returns a new store for each operation.
    open_store: Callable[[], Store]
    now: Callable[[], datetime]
    new_id: Callable[[], str]
    rng: random.Random
    #: Returns whether a table has subscribers.
    has_subscribers: Callable[[Table], bool]

    # Initial data

    async def load(self) -> int:
        """Create the people and their posts of the last days.

        Return the number of posts, 0 if an earlier load completed.

        All times and ids derive from the time at which the first user joined. If a load is interrupted, the next one
        therefore writes the missing items and changes nothing else.
        """
        store, now = self.open_store(), self.now()
        if await Users(store, now).by_id(NEWCOMER) is not None:
            return 0
        first, *others = [user_id for user_id in NAMES if user_id != NEWCOMER]
        began = min(await self._join(first, now - JOINED_BEFORE) + JOINED_BEFORE, now)
        await asyncio.gather(*[self._join(user_id, began - JOINED_BEFORE) for user_id in others])
        follows = Follows(store, began - FOLLOWED_BEFORE)
        pairs = [(follower, followee) for follower, named in FOLLOWS.items() for followee in named.split()]
        await asyncio.gather(*[follows.follow(*pair) for pair in pairs])
        await asyncio.gather(*[self._publish(post_id, scripted, began) for post_id, scripted in posts_with_ids()])
        await self._join(NEWCOMER, began)
        return len(SCRIPT)

    async def _join(self, user_id: str, moment: datetime) -> datetime:
        """Create the user, if missing, as of `moment`. Return the time at which the user joined."""
        name, bio = NAMES[user_id]
        user = await Users(self.open_store(), moment).create(user_id, name=name, bio=bio)
        return user.created_at or moment

    async def _publish(self, post_id: str, scripted: ScriptedPost, began: datetime) -> None:
        """Create the post with its likes and comments, `scripted.hours` before `began`, the time of the first load."""
        moment = began - timedelta(hours=scripted.hours)
        post = await self._posts(scripted.author, moment).create(
            post_id, author_id=scripted.author, text=scripted.text, visibility=scripted.visibility
        )
        store = self.open_store()
        for number, user_id in enumerate(likers(scripted), start=1):
            await Likes(store, min(moment + number * PAUSE, began)).like(post, user_id)
        for number, (user_id, text) in enumerate(scripted.comments, start=1):
            at = min(moment + number * PAUSE, began)
            comment_id = uuid7(at, f"{post_id} {number}")
            await Comments(store, at).add(post, comment_id, user_id, text, hashtags.mentions(text))

    # Activity

    async def act(self) -> None:
        """Perform one random action of a member of the cast, and enforce the limits.

        Posts and comments above a limit are deleted, and old notifications are marked read. While the table has no
        subscriber, usually nothing is done.
        """
        if not self.has_subscribers(FEED) and self.rng.random() >= IDLE_PROBABILITY:
            return
        [action] = self.rng.choices((self._post, self._like, self._comment, self._follow), (25, 40, 25, 10))
        actor = self.rng.choice(CAST)
        await action(actor)
        for user_id in (actor, VISITOR):
            await self._mark_old_notifications_read(user_id)

    async def _post(self, actor: str) -> None:
        posts = self._posts(actor, self.now())
        [visibility] = self.rng.choices((Visibility.PUBLIC, Visibility.FOLLOWERS), (4, 1))
        text = self.rng.choice(POST_TEXTS)
        await posts.create(LIVE_PREFIX + self.new_id(), author_id=actor, text=text, visibility=visibility)
        page = await posts.by_author(actor, Span(MAX_LIVE_POSTS + MAX_REMOVED))
        live_posts = [
            post for post in readable_records(Post.decoder, page.items) if post.post_id.startswith(LIVE_PREFIX)
        ]
        for post in live_posts[MAX_LIVE_POSTS:]:
            await posts.delete(post.post_id, actor)

    async def _like(self, actor: str) -> None:
        """Like a recent post, or remove the actor's like from it: otherwise everybody soon likes every post."""
        post = await self._recent_visible_post(actor)
        if post is None:
            return
        likes = Likes(self.open_store(), self.now())
        if await likes.is_liked(post.post_id, actor):
            await likes.unlike(post.post_id, actor)
        else:
            await likes.like(post, actor)

    async def _comment(self, actor: str) -> None:
        post = await self._recent_visible_post(actor)
        if post is None:
            return
        now, text = self.now(), self.rng.choice(COMMENT_TEXTS)
        comments = Comments(self.open_store(), now)
        await comments.add(post, uuid7(now, self.new_id()), actor, text, hashtags.mentions(text))
        page = await comments.of_post(post.post_id, Span(100, backward=True))
        own = [comment for comment in readable_records(Comment.decoder, page.items) if comment.author_id == actor]
        for comment in own[:-MAX_COMMENTS_EACH]:
            await comments.delete(post.post_id, comment.comment_id, actor)

    async def _follow(self, actor: str) -> None:
        """Unfollow the visitor, or follow the visitor if the actor does not yet."""
        follows = Follows(self.open_store(), self.now())
        if await follows.unfollow(actor, VISITOR) is None:
            await follows.follow(actor, VISITOR)

    async def _recent_visible_post(self, actor: str) -> Post | None:
        """Return one of the two newest posts of an author, usually the visitor, that the actor may see, or None."""
        author = VISITOR if self.rng.random() < 0.6 else self.rng.choice(CAST)
        page = await self._posts(actor, self.now()).by_author(author, Span(2))
        found = readable_records(Post.decoder, page.items)
        return self.rng.choice(found) if found else None

    async def _mark_old_notifications_read(self, user_id: str) -> None:
        notifications = Notifications(self.open_store(), self.now())
        page = await notifications.unread(user_id, Span(MAX_UNREAD + MAX_REMOVED))
        for old in readable_records(Notification.decoder, page.items[MAX_UNREAD:]):
            await notifications.mark_read(user_id, old.notification_id)

    def _posts(self, viewer: str, now: datetime) -> Posts:
        store = self.open_store()
        return Posts(store, now, VisibilityPolicy(store, Viewer(viewer)))


def posts_with_ids() -> list[tuple[str, ScriptedPost]]:
    """Return the scripted posts with their ids: `<author>-<number>`.

    The number counts an author's posts from the newest, which comes first in `SCRIPT`.
    """
    counts: Counter[str] = Counter()
    posts = []
    for scripted in SCRIPT:
        counts[scripted.author] += 1
        posts.append((f"{scripted.author}-{counts[scripted.author]}", scripted))
    return posts


def likers(scripted: ScriptedPost) -> list[str]:
    """Return `scripted.likes` users who may see the post, in the order of the cast beginning after the author."""
    people = [*CAST, VISITOR]
    after = people.index(scripted.author) + 1 if scripted.author in people else 0
    others = [user_id for user_id in [*people[after:], *people[:after]] if user_id != scripted.author]
    if scripted.visibility is not Visibility.PUBLIC:
        others = [user_id for user_id in others if scripted.author in FOLLOWS[user_id].split()]
    return others[: scripted.likes]
