"""Counts in the responses of mutations, which contain the caller's own change.

The pipeline counts a like, comment or follow moments after it was written. The count of a response is

    the stored count + (the item exists now ? 1 : 0) - (the stored count contains the item ? 1 : 0)

The latest mark of the item (`count_marks`) states what the stored count contains. It is read before and after the
count: if it is the same mark, it was the latest one when the count was read.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from msgspec.structs import replace

from datastore.dynamodb.codec import Item
from datastore.dynamodb.record_decoder import RecordDecoder
from datastore.dynamodb.records import record
from datastore.feeds.comments import Comment
from datastore.feeds.count_marks import CountMark, CountMarks, needs_mark
from datastore.feeds.follows import Follow
from datastore.feeds.likes import Like
from datastore.feeds.posts import Post, full_post
from datastore.feeds.users import User
from datastore.feeds.visibility import Visibility
from datastore.keyspace.feeds import comments, follows, likes, posts, users
from datastore.model.access_patterns import AccessPattern
from datastore.model.composite_keys import Key
from datastore.session.store import Store

# The marks of one caller's changes change between the reads only if these are counted at this moment.
ATTEMPTS = 5

Counted = TypeVar("Counted", Post, User)


@dataclass(frozen=True, slots=True)
class _OwnChange:
    """The caller's last change of an item."""

    exists: bool
    #: Whether the counts contain the item if it has no mark.
    is_counted_unmarked: bool


class OwnChanges:
    """The changes of likes, comments and follows that the mutations of one operation made."""

    def __init__(self, store: Store, now: datetime) -> None:
        self._store = store
        self._now = now
        self._marks = CountMarks(store, now)
        #: By the item that has the count, the name of the count, and the item that is counted.
        self._changes: dict[Key, dict[str, dict[Key, _OwnChange]]] = defaultdict(lambda: defaultdict(dict))

    def like(self, like: Like, *, exists: bool) -> None:
        """Note that the caller likes a post, or no longer does."""
        item = likes.like(like.post_id, like.user_id)
        self._note(posts.post(like.post_id), "likes", item, like.marked_until, exists)

    def comment(self, comment: Comment, *, exists: bool) -> None:
        """Note that the caller added or deleted a comment."""
        item = comments.comment(comment.post_id, comment.comment_id)
        self._note(posts.post(comment.post_id), "comments", item, comment.marked_until, exists)

    def post(self, post: Post, *, exists: bool) -> None:
        """Note that the caller wrote or deleted a post. Private posts are not counted."""
        if post.visibility is not Visibility.PRIVATE:
            self._note(users.user(post.author_id), "posts", posts.post(post.post_id), post.marked_until, exists)

    def follow(self, follow: Follow, *, exists: bool) -> None:
        """Note that the caller follows a user, or no longer does."""
        item = follows.following(follow.follower_id, follow.followee_id)
        self._note(users.user(follow.follower_id), "following", item, follow.marked_until, exists)
        self._note(users.user(follow.followee_id), "followers", item, follow.marked_until, exists)

    def _note(self, counting: Key, name: str, item: Key, until: datetime | None, exists: bool) -> None:
        self._changes[counting][name][item] = _OwnChange(exists, not needs_mark(until, self._now))

    def prepare_posts(self, found: Sequence[Post | Exception | None]) -> Sequence[Post | Exception | None]:
        """Return the posts, those that the caller changed without the changed counts: `count_of_post` returns them."""
        if not self._changes:
            return found
        return [
            self._without_counts(posts.post(each.post_id), each) if isinstance(each, Post) else each for each in found
        ]

    def prepare_users(self, found: Sequence[User | Exception | None]) -> Sequence[User | Exception | None]:
        """Return the users, those that the caller changed without the changed counts: `count_of_user` returns them."""
        if not self._changes:
            return found
        return [
            self._without_counts(users.user(each.user_id), each) if isinstance(each, User) else each for each in found
        ]

    def _without_counts(self, key: Key, found: Counted) -> Counted:
        return replace(found, **dict.fromkeys(self._changes[key])) if key in self._changes else found

    async def count_of_post(self, post_id: str, name: str) -> int | None:
        """FEED-N7: return `likes` or `comments` with the caller's changes, or None if there are none."""
        return await self._count(posts.COUNTS, posts.post(post_id), name, full_post)

    async def count_of_user(self, user_id: str, name: str) -> int | None:
        """FEED-N7: return `posts`, `followers` or `following` with the caller's changes, or None if there are none."""
        return await self._count(users.COUNTS, users.user(user_id), name, User.decoder)

    async def _count(
        self, pattern: AccessPattern, key: Key, name: str, decoder: RecordDecoder[Post] | RecordDecoder[User]
    ) -> int | None:
        changes = self._changes[key][name] if name in self._changes.get(key, ()) else None
        if changes is None:
            return None
        latest = await self._latest(changes)
        for _ in range(ATTEMPTS):
            stored = record(decoder, await self._read_now(pattern, key))
            before, latest = latest, await self._latest(changes)
            if latest == before:
                break
        count: int = getattr(stored, name, None) or 0
        for change, mark in zip(changes.values(), latest, strict=True):
            count += change.exists - (change.is_counted_unmarked if mark is None else mark.is_counted)
        return max(0, count)

    async def _read_now(self, pattern: AccessPattern, key: Key) -> Item | None:
        """Return an item as it is after the last read of the marks. The operation's store may have read it before."""
        store = self._store.reopened(self._store.deadline)
        try:
            return await store.get(pattern, key)
        finally:
            store.close()

    async def _latest(self, items: Iterable[Key]) -> list[CountMark | None]:
        return await asyncio.gather(*[self._marks.latest(item) for item in items])
