"""Posts: records, reads and writes in the table and its indexes."""

import asyncio
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from datastore.change_streams.change import Change
from datastore.dynamodb.client import TransactionCancelled
from datastore.dynamodb.codec import Item, Raw, encode
from datastore.dynamodb.record_decoder import RecordDecoder, count, text, texts
from datastore.dynamodb.records import raw_record_or_error
from datastore.errors import Conflict, Forbidden, Internal, NotFound
from datastore.feeds import hashtags
from datastore.feeds.users import no_profile
from datastore.feeds.visibility import VISIBILITIES, Visibility, VisibilityPolicy
from datastore.keyspace.feeds import posts as keys
from datastore.keyspace.feeds import users as user_keys
from datastore.keyspace.feeds.users import META
from datastore.model.access_patterns import AccessPattern
from datastore.model.composite_keys import second_part
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


class Post(Struct, frozen=True, gc=False):
    """A post. Its text, visibility, tags and author never change.

    `likes`, `comments` and `mentions` are None if the post was read from an index that does not project them.
    """

    post_id: str
    author_id: str
    created_at: datetime
    visibility: Visibility
    text: str
    media_ref: str | None
    tags: tuple[str, ...]
    likes: int | None
    comments: int | None
    mentions: tuple[str, ...] | None


def is_post(item_keys: Mapping[str, str]) -> bool:
    return item_keys["SK"] == META and item_keys["PK"].startswith("POST#")


def is_tag(item_keys: Mapping[str, str]) -> bool:
    return item_keys["SK"].startswith(keys.TAG_PREFIX) and item_keys["PK"].startswith("POST#")


def is_live(item: Mapping[str, Any] | None) -> bool:
    """Return whether the item of a post exists and is not a tombstone."""
    return item is not None and "deleted_at" not in item


def _moment_at(position: str) -> datetime:
    moment, _, _ = position.split("#")  # a moment has no signs that keys cannot hold
    return from_iso(moment)


# The post in an item of GSI1, or of a tag in GSI2.
post_from = RecordDecoder(
    Post,
    post_id=text("PK", second_part),
    author_id=text("author_id", default=text("GSI1PK", second_part)),
    created_at=text("GSI1SK", _moment_at, default=text("GSI2SK", _moment_at, default=text("created_at", from_iso))),
    visibility=text("visibility", VISIBILITIES),
    text=text("text", default=""),
    media_ref=text("media_ref", default=None),
    tags=texts("tags", default=()),
    likes=count("likes", default=0, requires="GSI1PK"),
    comments=count("comments", default=0, requires="GSI1PK"),
    # The item of a tag has neither, nor has its projection in GSI2.
    mentions=texts("mentions", default=(), requires="created_at"),
)
# The post in its own item, which has all attributes.
full_post_from = post_from.replacing(
    likes=count("likes", default=0), comments=count("comments", default=0), mentions=texts("mentions", default=())
)


def created_post(change: Change) -> Post | None:
    """Return the post that a change created, or None."""
    if change.kind != "INSERT" or not is_post(change.keys) or change.new is None or not is_live(change.new):
        return None
    return full_post_from(change.new)


def deleted_post(change: Change) -> Post | None:
    """Return the post that a change deleted, as it was before, or None."""
    if not is_post(change.keys) or change.old is None or not is_live(change.old) or is_live(change.new):
        return None
    return full_post_from(change.old)


class Posts:
    """One method for each access pattern."""

    def __init__(self, store: Store, now: datetime, policy: VisibilityPolicy) -> None:
        self._store = store
        self._now = now
        self._policy = policy

    async def visible(self, post_id: str, pattern: AccessPattern = keys.POST) -> Post | None:
        """FEED-004: return a post, or None if it was deleted or the viewer may not see it.

        With a consistent `pattern` the viewer's follow is read consistently too.
        """
        post = await self._live_post(post_id, pattern)
        if post is not None and (
            post.visibility is Visibility.PUBLIC or await self._policy.allows(post.author_id, post.visibility, pattern)
        ):
            return post
        self._store.meter.withheld += 1
        return None

    async def with_all_attributes(self, post: Post) -> Post:
        """FEED-004: read the post again, with the attributes that the index it was read from does not project."""
        return await self._live_post(post.post_id, keys.POST) or replace(post, likes=0, comments=0, mentions=())

    async def _live_post(self, post_id: str, pattern: AccessPattern) -> Post | None:
        item = await self._store.find(pattern, keys.post(post_id))
        return item.record(full_post_from) if item is not None and is_live(item.raw) else None

    async def by_author(self, author_id: str, span: Span, *, has_child_reads: bool = False) -> Page:
        """FEED-002: return the posts of an author that the viewer may see, newest first.

        `has_child_reads` means that point reads follow for each post. Those of several lists are sent in one batch.
        """
        values = {"partition": keys.by_author(author_id)}
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
        values = {"partition": keys.by_tag(name)}
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
        post = raw_record_or_error(post_from, item)
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
        values = {
            "me": post.author_id,
            "now": iso(self._now),
            "gone": to_seconds(self._now + TOMBSTONE_LIFETIME),
        }
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
        Action("Put", item=_post_item(post), condition=keys.CREATE_POST.condition),
        *[Action("Put", item=_tag_item(post, name)) for name in post.tags],
    ]


def _existing_post(cancelled: TransactionCancelled, post: Post) -> Post:
    """Return the stored post with the id of `post`. Raises `Conflict` unless the same author wrote it."""
    if cancelled.reasons[0] != "ConditionalCheckFailed":
        raise cancelled
    item = cancelled.items[0]
    if item is None or not is_live(item) or item.get("author_id") != post.author_id:
        raise Conflict(f"The id {post.post_id} is taken.") from cancelled
    return full_post_from(item)


def _post_item(post: Post) -> Item:
    key = keys.post(post.post_id)
    item = {
        "PK": key.partition,
        "SK": key.sort,
        "GSI1PK": keys.by_author(post.author_id),
        "GSI1SK": keys.position(post.created_at, post.post_id),
        "created_at": iso(post.created_at),
        "likes": 0,
        "comments": 0,
    }
    return item | _listed_attributes(post) | ({"mentions": list(post.mentions)} if post.mentions else {})


def _tag_item(post: Post, name: str) -> Item:
    key = keys.tag(post.post_id, name)
    item = {"PK": key.partition, "SK": key.sort, **_listed_attributes(post)}
    if post.visibility is Visibility.PRIVATE:
        return item  # in no index: a search for the tag would pay for posts that it may not return
    return item | {"GSI2PK": keys.by_tag(name), "GSI2SK": keys.position(post.created_at, post.post_id)}


def _listed_attributes(post: Post) -> Item:
    """Return the attributes of a post that lists show, which all its items contain."""
    listed: Item = {"author_id": post.author_id, "visibility": post.visibility.value, "text": post.text}
    listed |= {"media_ref": post.media_ref} if post.media_ref else {}
    return listed | ({"tags": list(post.tags)} if post.tags else {})
