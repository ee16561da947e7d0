"""Posts: records, reads and writes in the table and its indexes, and the cascade delete of a post's items."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import not_
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from datastore.change_streams.change import Change
from datastore.dynamodb.client import TransactionCancelled
from datastore.dynamodb.codec import Item, Raw, encode
from datastore.dynamodb.records import LazyItem, point_records, raw_record_or_error
from datastore.errors import Conflict, Forbidden, Internal, NotFound
from datastore.feeds import hashtags
from datastore.feeds.count_marks import marked_until
from datastore.feeds.users import no_profile
from datastore.feeds.visibility import Visibility, VisibilityPolicy
from datastore.items import attributes as stored
from datastore.items.attributes import FROM_KEY
from datastore.items.forms import Line, Prose
from datastore.items.stored_item import StoredItem
from datastore.keyspace.feeds import posts as keys
from datastore.keyspace.feeds import users as user_keys
from datastore.keyspace.feeds.table import FEED
from datastore.model.access_patterns import AccessPattern
from datastore.model.composite_keys import Key, key_of, second_part
from datastore.model.timestamps import from_iso, iso, to_seconds
from datastore.session.pagination import Page, SelectItems, Span, read_page
from datastore.session.store import Store
from datastore.session.writes import Action

# The time for which a deleted post's id cannot be used.
TOMBSTONE_LIFETIME = timedelta(days=30)
PUBLIC, PRIVATE = encode(Visibility.PUBLIC), encode(Visibility.PRIVATE)
# The attributes that the item of a tag copies from its post. Items of other programs may lack them.
COPIED = ("author_id", "visibility", "text", "media_ref", "tags")
COPIED_ALWAYS = frozenset({"author_id", "visibility", "text"})


def _moment_at(position: str) -> datetime:
    moment, _, _ = position.split("#")  # a moment has no signs that keys cannot hold
    return from_iso(moment)


class Post(StoredItem, key=keys.post, indexes=(keys.post_by_author,)):
    """A post. Its text, visibility, tags and author never change.

    The decoder reads the items of GSI1, and those of a tag in GSI2. `likes`, `comments` and `mentions` are None if the
    index does not project them, and a count is None if the caller's own change must be added (see `own_changes`).
    """

    post_id: str = stored.part()
    author_id: str = stored.text("author_id", missing=FROM_KEY, typical=12)
    created_at: datetime = stored.text(
        "GSI1SK",
        _moment_at,
        missing=stored.text("GSI2SK", _moment_at, missing=stored.moment("created_at")),
        written_as="created_at",
        encode=iso,
    )
    visibility: Visibility = stored.choice("visibility", Visibility)
    text: str = stored.text("text", missing="", form=Prose(2000))
    media_ref: str | None = stored.text("media_ref", missing=None, omit=not_, form=Line(500), typical=0)
    tags: tuple[str, ...] = stored.texts("tags", missing=(), omit=not_, typical=10)
    likes: int | None = stored.count("likes", missing=0, requires="GSI1PK")
    comments: int | None = stored.count("comments", missing=0, requires="GSI1PK")
    # The item of a tag has none, nor has its projection in GSI2.
    mentions: tuple[str, ...] | None = stored.texts("mentions", missing=(), requires="created_at", omit=not_, typical=0)
    #: Until then the post is counted only if it has a mark (see `count_marks`).
    marked_until: datetime | None = stored.moment("marked_until", default=None)


# The decoder of a post's own item, which has all attributes.
full_post = Post.decoder.replacing(
    likes=stored.count("likes", missing=0),
    comments=stored.count("comments", missing=0),
    mentions=stored.texts("mentions", missing=()),
)
is_post = keys.post.matches
is_tag = keys.tag.matches


def is_live(item: Mapping[str, Any] | None) -> bool:
    """Return whether the item of a post exists and is not a tombstone."""
    return item is not None and "deleted_at" not in item


def live_post(item: LazyItem | None) -> Post | None:
    """Return the post of its own item, or None if the item does not exist or is a tombstone."""
    return item.record(full_post) if item is not None and is_live(item.raw) else None


def created_post(change: Change) -> Post | None:
    """Return the post that a change created, or None."""
    if change.kind != "INSERT" or not is_post(change.keys) or change.new is None or not is_live(change.new):
        return None
    return full_post(change.new)


def deleted_post(change: Change) -> Post | None:
    """Return the post that a change deleted, as it was before, or None."""
    if not is_post(change.keys) or change.old is None or not is_live(change.old) or is_live(change.new):
        return None
    return full_post(change.old)


class Posts(Struct, eq=False):
    """One method for each access pattern."""

    _store: Store
    _now: datetime
    _policy: VisibilityPolicy

    async def visible(self, post_id: str, pattern: AccessPattern = keys.POST) -> Post | None:
        """FEED-004: return a post, or None if it was deleted or the viewer may not see it.

        With a consistent `pattern` the viewer's follow is read consistently too.
        """
        post = live_post(await self._store.find(pattern, keys.post(post_id)))
        if post is not None and post.visibility is Visibility.PUBLIC:
            return post
        return await self._unless_withheld(post, pattern)

    async def all_visible(
        self, post_ids: Sequence[str], pattern: AccessPattern = keys.POST
    ) -> list[Post | Exception | None]:
        """FEED-004: return what `visible` returns for each post, or its error. The posts are read in one batch.

        The follows that decide are read in another one, unless they are prefetched.
        """
        items = await self._store.find_all(pattern, list(map(keys.post, post_ids)))
        live = [None if isinstance(item, LazyItem) and not is_live(item.raw) else item for item in items]
        posts = point_records(full_post, live)
        self._store.meter.withheld += posts.count(None)
        restricted = [post for post in posts if isinstance(post, Post) and post.visibility is not Visibility.PUBLIC]
        if not restricted:
            return posts
        shown = await asyncio.gather(*[self._shown_or_error(post, pattern) for post in restricted])
        by_id = {post.post_id: found for post, found in zip(restricted, shown, strict=True)}
        return [by_id.get(post.post_id, post) if isinstance(post, Post) else post for post in posts]

    async def _shown_or_error(self, post: Post, pattern: AccessPattern) -> Post | Exception | None:
        """Return the post if the viewer may see it, or the error of reading the viewer's follow."""
        try:
            return await self._unless_withheld(post, pattern)
        except Exception as error:
            return error

    async def _unless_withheld(self, post: Post | None, pattern: AccessPattern) -> Post | None:
        """Return the post if the viewer may see it. Otherwise count it as withheld, like a missing one."""
        if post is not None and await self._policy.allows(post.author_id, post.visibility, pattern):
            return post
        self._store.meter.withheld += 1
        return None

    async def with_all_attributes(self, post: Post) -> Post:
        """FEED-004: read the post again, with the attributes that the index it was read from does not project."""
        whole = live_post(await self._store.find(keys.POST, keys.post(post.post_id)))
        return whole or replace(post, likes=0, comments=0, mentions=())

    async def by_author(self, author_id: str, span: Span, *, has_child_reads: bool = False) -> Page:
        """FEED-002: return the posts of an author that the viewer may see, newest first.

        `has_child_reads` means that point reads follow for each post. Those of several lists are sent in one batch.
        """
        values = {"partition": keys.post_by_author.partition_of(author_id)}
        select: SelectItems | None = None
        if self._policy.sees_all_of(author_id):
            shown = {}
        elif self._policy.viewer.user_id is None:
            shown = {"public": Visibility.PUBLIC.value}
        else:
            shown = {"private": Visibility.PRIVATE.value}
            select, has_child_reads = self._filter_visible, True
        return await read_page(
            self._store, keys.POSTS_BY_AUTHOR, [values | shown], span, select=select, has_child_reads=has_child_reads
        )

    async def by_tag(self, name: str, span: Span) -> Page:
        """FEED-007: return the posts with a tag that the viewer may see, newest first. Private posts are not listed."""
        values = {"partition": keys.post_by_tag.partition_of(name)}
        viewer = self._policy.viewer
        signed_in = viewer.user_id is not None
        shown = {} if signed_in or viewer.sees_all else {"public": Visibility.PUBLIC.value}
        return await read_page(self._store, keys.POSTS_BY_TAG, [values | shown], span, select=self._visible_tagged)

    async def _visible_tagged(self, items: list[Raw]) -> list[Raw]:
        """Return the items of a tag whose posts the viewer may see, with missing copies of the posts' attributes.

        The posts of items that other programs wrote without copies are read in one batch.
        """
        if any(not item.keys() >= COPIED_ALWAYS for item in items):
            completed = await asyncio.gather(*map(self._with_copies, items))
            items = [item for item in completed if item is not None]
        return items if self._policy.viewer.sees_all else await self._filter_visible(items)

    async def _with_copies(self, item: Raw) -> Raw | None:
        """Return the item of a tag with its copies of the post's attributes; None if the post is not listed by tag."""
        if item.keys() >= COPIED_ALWAYS:
            return item
        post = await self._store.find(keys.POSTS_BY_TAG, keys.post(second_part(item["PK"]["S"])))
        if post is None or not is_live(post.raw) or post.raw.get("visibility") == PRIVATE:
            return None
        return {**{name: post.raw[name] for name in COPIED if name in post.raw}, **item}

    async def _filter_visible(self, items: list[Raw]) -> list[Raw]:
        """Return the items of a page that the viewer may see. The viewer's follows are read in one batch."""
        restricted = [item for item in items if item.get("visibility") != PUBLIC]
        if not restricted:
            return items
        allowed = iter(await asyncio.gather(*map(self._may_see, restricted)))
        return [item for item in items if item.get("visibility") == PUBLIC or next(allowed)]

    async def _may_see(self, item: Raw) -> bool:
        post = raw_record_or_error(Post.decoder, item)
        # A damaged item shows nothing but its damage.
        return isinstance(post, Internal) or await self._policy.allows(post.author_id, post.visibility)

    async def create(
        self, post_id: str, *, author_id: str, text: str, visibility: Visibility, media_ref: str | None = None
    ) -> Post:
        """FEED-W1: write a post and its tags in one transaction. Return the author's existing post of this id.

        The author's item is read before the transaction: users are never deleted, and a condition check in the
        transaction would conflict with the counting of posts and followers.

        Raises `NotFound` if the author has no profile, `Conflict` if the id belongs to another user's or a deleted
        post, `BadUserInput` for too many tags or mentions.
        """
        post = Post(
            post_id=post_id,
            author_id=author_id,
            created_at=from_iso(iso(self._now)),
            visibility=visibility,
            text=text,
            media_ref=media_ref,
            tags=hashtags.tags(text),
            likes=0,
            comments=0,
            mentions=hashtags.mentions(text),
            marked_until=marked_until(self._now),
        )
        if await self._store.get(keys.CREATE_POST, user_keys.user(author_id)) is None:
            raise no_profile()
        try:
            await self._store.transact(keys.CREATE_POST, _create_actions(post))
        except TransactionCancelled as cancelled:
            return _existing_post(cancelled, post)
        return post

    async def delete(self, post_id: str, user_id: str) -> Post | None:
        """FEED-W6: delete a post and its tags. Return the post as it was, or None if it was deleted before.

        Raises `NotFound` if there is no post that the user may see, `Forbidden` for another user's post.
        """
        item = await self._store.get(keys.DELETE_POST, keys.post(post_id))
        if item is not None and item.get("author_id") == user_id and not is_live(item):
            return None
        post = await self.visible(post_id, keys.DELETE_POST)
        if post is None:
            raise NotFound("There is no such post.")
        if post.author_id != user_id:
            raise Forbidden("This is another user's post.")
        try:
            await self._store.transact(keys.DELETE_POST, self._delete_actions(post))
        except TransactionCancelled as cancelled:
            if cancelled.reasons[0] != "ConditionalCheckFailed":
                raise
            return None
        return post

    def _delete_actions(self, post: Post) -> list[Action]:
        values = {"me": post.author_id, "now": iso(self._now), "gone": to_seconds(self._now + TOMBSTONE_LIFETIME)}
        tombstone = Action(
            "Update",
            key=keys.post(post.post_id),
            update=keys.DELETE_POST.update,
            condition=keys.DELETE_POST.condition,
            values=values,
        )
        return [tombstone, *[Action("Delete", key=keys.tag(post.post_id, name)) for name in post.tags]]


def _create_actions(post: Post) -> list[Action]:
    return [
        Action("Put", item=post.item(), condition=keys.CREATE_POST.condition),
        *[Action("Put", item=_tag_item(post, name)) for name in post.tags],
    ]


def _existing_post(cancelled: TransactionCancelled, post: Post) -> Post:
    """Return the stored post with the id of `post`. Raises `Conflict` unless the same author wrote it."""
    if cancelled.reasons[0] != "ConditionalCheckFailed":
        raise cancelled
    item = cancelled.items[0]
    if item is None or not is_live(item) or item.get("author_id") != post.author_id:
        raise Conflict(f"The id {post.post_id} is taken.") from cancelled
    return full_post(item)


def _tag_item(post: Post, name: str) -> Item:
    key, index_key = keys.tag(post.post_id, name), keys.post_by_tag(name, post.created_at, post.post_id)
    copied = {attribute: value for attribute, value in post.item().items() if attribute in COPIED}
    item = {"PK": key.partition, "SK": key.sort, **copied}
    if post.visibility is Visibility.PRIVATE:
        return item  # in no index: a search for the tag would pay for posts that it may not return
    return item | {"GSI2PK": index_key.partition, "GSI2SK": index_key.sort}


@dataclass(frozen=True, slots=True)
class ChildrenPage:
    """A page of the keys of a post's items, and the start of the next page, if there is one."""

    keys: list[Key]
    next_start: Item | None


@dataclass(frozen=True, slots=True)
class UnavailablePosts:
    """Ids of posts that no reader can see."""

    #: Posts with a tombstone.
    deleted: set[str]
    #: Posts without an item.
    missing: set[str]

    @property
    def all(self) -> set[str]:
        return self.deleted | self.missing


class PostChildren:
    """The likes, comments and tags of posts. One method for each access pattern."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def unavailable(self, post_ids: Iterable[str]) -> UnavailablePosts:
        """FEED-P4: return which of the posts are deleted, and which are not stored."""
        ids = list(dict.fromkeys(post_ids))
        items = await asyncio.gather(*[self._store.get(keys.POST_EXISTS, keys.post(post_id)) for post_id in ids])
        posts = dict(zip(ids, items, strict=True))
        deleted = {post_id for post_id, post in posts.items() if post is not None and not is_live(post)}
        return UnavailablePosts(deleted, {post_id for post_id, post in posts.items() if post is None})

    async def page(self, post_id: str, start: Item | None, limit: int) -> ChildrenPage:
        """FEED-P4: return a page of a deleted post's items, without its tombstone."""
        values = {"partition": keys.post.partition_of(post_id)}
        page = await self._store.query(
            keys.ITEMS_OF_DELETED_POST, values, start=start, limit=limit, attributes=("PK", "SK")
        )
        return ChildrenPage([key_of(FEED, item) for item in page.items if not is_post(item)], page.next_start)

    async def delete(self, children: Sequence[Key]) -> None:
        """FEED-P4: delete items of a post. A repeat changes nothing."""
        await self._store.write_all(keys.DELETE_ITEMS_OF_POST, deletes=children)
