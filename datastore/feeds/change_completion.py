"""Completion of other programs' changes of likes, comments and tags with the attributes of their posts.

The document lists `LIKE {created_at}`, `COMMENT {user_id, created_at, text_len}` and tags without attributes. Handlers
also need the author and visibility of the post, which this gateway copies into its own items.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from datastore.change_streams.change import Change
from datastore.dynamodb.codec import Item
from datastore.feeds.comments import is_comment
from datastore.feeds.hashtags import tag_name
from datastore.feeds.likes import is_like
from datastore.feeds.posts import is_tag
from datastore.feeds.visibility import Visibility
from datastore.keyspace.feeds import posts as keys
from datastore.keyspace.feeds.table import FEED
from datastore.model.composite_keys import key_of, second_part
from datastore.model.timestamps import from_iso
from datastore.session.store import Store


async def complete_changes(open_store: Callable[[], Store], changes: Sequence[Change]) -> Sequence[Change]:
    """Return the changes, each image of a like, comment or tag with the post's author and visibility (FEED-P7).

    The posts of images that lack them are read in one batch; without such images nothing is read. An image whose post
    does not exist stays incomplete.
    """
    post_ids = {keys.post_parts(key_of(FEED, change.keys)) for change in changes if _is_incomplete(change)}
    if not post_ids:
        return changes
    store, ids = open_store(), sorted(post_ids)
    items = await asyncio.gather(*[store.get(keys.POST_OF_ITEMS, keys.post(post_id)) for post_id in ids])
    posts = {post_id: post for post_id, post in zip(ids, items, strict=True) if post is not None}
    return [_complete(change, posts) if _is_incomplete(change) else change for change in changes]


def _is_incomplete(change: Change) -> bool:
    """Return whether an image lacks the post's author, which items of this gateway always have."""
    if not (is_like(change.keys) or is_comment(change.keys) or is_tag(change.keys)):
        return False
    name = "author_id" if is_tag(change.keys) else "post_author"
    return any(image is not None and name not in image for image in (change.old, change.new))


def _complete(change: Change, posts: Mapping[str, Item]) -> Change:
    post = posts.get(keys.post_parts(key_of(FEED, change.keys)), {})
    copied = _tag_attributes(post) if is_tag(change.keys) else _engagement_attributes(post)
    return replace(change, old=_with(copied, change.old), new=_with(copied, change.new))


def _engagement_attributes(post: Mapping[str, Any]) -> Item:
    copied = {"post_author": post.get("author_id"), "post_visibility": post.get("visibility")}
    return {name: value for name, value in copied.items() if value is not None}


def _tag_attributes(post: Mapping[str, Any]) -> Item:
    """Return the attributes for a tag of a post. `listed` contains the tags in the post itself, counted with it."""
    if post.get("visibility") != Visibility.PUBLIC or "created_at" not in post:
        return {}
    return {"tagged_at": post["created_at"], "listed": post.get("tags", [])}


def foreign_tag(change: Change, image: Mapping[str, Any]) -> tuple[str, datetime] | None:
    """Return the tag that another program added to a public post, and the post's time; None for this gateway's tags.

    This gateway's tags are counted with their posts, which list them.
    """
    name = tag_name(second_part(change.keys["SK"])) if is_tag(change.keys) and "tagged_at" in image else None
    return None if name is None or name in image["listed"] else (name, from_iso(image["tagged_at"]))


def _with(copied: Item, image: Item | None) -> Item | None:
    return None if image is None else copied | image
