"""A feed for the demo: invented people with their posts, and a cast that goes on living.

All is written as clients would: counters, feeds, boards and notifications are then made by the feed's pipeline.
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
from pipelines.demo.feeds_cast import CAST, COMMENTS, FOLLOWS, NAMES, NEWCOMER, POSTS, SAID, VISITOR, Said

JOINED, BEFRIENDED = timedelta(days=30), timedelta(days=20)
PAUSE = timedelta(minutes=2)  # between likes, and between comments, of a post
LIVE = "live-"
# What is kept of each of the cast, so that a demo that runs for weeks stays small.
LIVE_POSTS, COMMENTS_EACH, UNREAD = 6, 2, 50
MORE = 25
# While nobody follows, one time in ten.
QUIET = 0.1


class FeedDemo:
    """`open_store` gives a fresh `Store` for each piece of work."""

    def __init__(
        self,
        open_store: Callable[[], Store],
        *,
        now: Callable[[], datetime],
        new_id: Callable[[], str],
        chance: random.Random,
        is_followed: Callable[[Table], bool],
    ) -> None:
        self._open_store = open_store
        self._now = now
        self._new_id = new_id
        self._chance = chance
        self._is_followed = is_followed

    # What is there from the beginning

    async def load(self) -> int:
        """The people and their posts of the last days, unless they are there: how many posts.

        All moments and ids follow from when the first of them joined: a start that was cut short is made good by the
        next, which writes what is missing and changes nothing else.
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
        await asyncio.gather(*[self._say(post_id, said, began) for post_id, said in numbered()])
        await self._join(NEWCOMER, began)
        return len(SAID)

    async def _join(self, user_id: str, moment: datetime) -> datetime:
        """When the user joined: now, if the moment is not later than that of before."""
        name, bio = NAMES[user_id]
        user = await Users(self._open_store(), moment).create(user_id, name=name, bio=bio)
        return user.created_at or moment

    async def _say(self, post_id: str, said: Said, began: datetime) -> None:
        moment = began - timedelta(hours=said.hours)
        post = await self._posts(said.author, moment).create(
            post_id, author_id=said.author, text=said.text, visibility=said.visibility
        )
        store = self._open_store()
        for number, user_id in enumerate(likers(said), start=1):
            await Likes(store, min(moment + number * PAUSE, began)).like(post, user_id)
        for number, (user_id, text) in enumerate(said.comments, start=1):
            at = min(moment + number * PAUSE, began)
            comment_id = uuid7(at, f"{post_id} {number}")
            await Comments(store, at).add(post, comment_id, user_id, text, texts.mentions(text))

    # What goes on

    async def live(self) -> None:
        """One of the cast posts, likes, comments or follows; what has become too much of it goes."""
        if not self._is_followed(FEED) and self._chance.random() >= QUIET:
            return
        [act] = self._chance.choices((self._post, self._like, self._comment, self._follow), (25, 40, 25, 10))
        actor = self._chance.choice(CAST)
        await act(actor)
        for user_id in (actor, VISITOR):
            await self._read_old_notifications(user_id)

    async def _post(self, actor: str) -> None:
        posts = self._posts(actor, self._now())
        [visibility] = self._chance.choices((Visibility.PUBLIC, Visibility.FOLLOWERS), (4, 1))
        text = self._chance.choice(POSTS)
        await posts.create(LIVE + self._new_id(), author_id=actor, text=text, visibility=visibility)
        page = await posts.by_author(actor, Span(LIVE_POSTS + MORE))
        lately = [post for post in readable_records(post_from, page.items) if post.post_id.startswith(LIVE)]
        for post in lately[LIVE_POSTS:]:
            await posts.delete(post.post_id, actor)

    async def _like(self, actor: str) -> None:
        """Or take the like back: else soon everybody likes everything."""
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
        now, text = self._now(), self._chance.choice(COMMENTS)
        comments = Comments(self._open_store(), now)
        await comments.add(post, uuid7(now, self._new_id()), actor, text, texts.mentions(text))
        page = await comments.of_post(post.post_id, Span(100, backward=True))
        own = [comment for comment in readable_records(comment_from, page.items) if comment.user_id == actor]
        for comment in own[:-COMMENTS_EACH]:
            await comments.delete(post.post_id, comment.comment_id, actor)

    async def _follow(self, actor: str) -> None:
        """Follow the visitor, or do so no more."""
        follows = Follows(self._open_store(), self._now())
        if await follows.unfollow(actor, VISITOR) is None:
            await follows.follow(actor, VISITOR)

    async def _new_post(self, actor: str) -> Post | None:
        """One of the two newest posts that the actor may see of somebody: more often than not of the visitor."""
        author = VISITOR if self._chance.random() < 0.6 else self._chance.choice(CAST)
        page = await self._posts(actor, self._now()).by_author(author, Span(2))
        found = readable_records(post_from, page.items)
        return self._chance.choice(found) if found else None

    async def _read_old_notifications(self, user_id: str) -> None:
        notifications = Notifications(self._open_store(), self._now())
        page = await notifications.unread(user_id, Span(UNREAD + MORE))
        for old in readable_records(notification_from, page.items[UNREAD:]):
            await notifications.mark_read(user_id, old.notification_id)

    def _posts(self, viewer: str, now: datetime) -> Posts:
        store = self._open_store()
        return Posts(store, now, VisibilityPolicy(store, Viewer(viewer)))


def numbered() -> list[tuple[str, Said]]:
    """All that was said, each with its id: the author's, and which of theirs it is, counted from the newest."""
    counted: Counter[str] = Counter()
    numbered = []
    for said in SAID:
        counted[said.author] += 1
        numbered.append((f"{said.author}-{counted[said.author]}", said))
    return numbered


def likers(said: Said) -> list[str]:
    """Those who like it: of the people after its author in the cast those who may see it."""
    people = [*CAST, VISITOR]
    after = people.index(said.author) + 1 if said.author in people else 0
    others = [user_id for user_id in [*people[after:], *people[:after]] if user_id != said.author]
    if said.visibility is not Visibility.PUBLIC:
        others = [user_id for user_id in others if said.author in FOLLOWS[user_id].split()]
    return others[: said.likes]
