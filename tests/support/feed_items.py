"""Items of the feed as stored, and changes of them."""

import itertools
from datetime import datetime
from typing import Any

from datastore.change_streams.change import Change
from datastore.dynamodb.codec import Item
from datastore.keyspace.feeds import comments, follows, likes, posts, users
from datastore.keyspace.feeds.table import FEED
from datastore.model.composite_keys import Key
from datastore.model.timestamps import iso
from tests.support.served import NOON

_sequence = itertools.count(1)


def user_item(user_id: str) -> Item:
    return _keyed(users.user(user_id), name=user_id.title(), created_at=iso(NOON))


def post_item(post_id: str, author: str = "ada", at: datetime = NOON, visibility: str = "public", **more: Any) -> Item:
    """Return a post. `more` can be the lists `tags` and `mentions`."""
    return _keyed(
        posts.post(post_id),
        GSI1PK=posts.post_by_author.partition_of(author),
        GSI1SK=posts.post_by_author(author, at, post_id).sort,
        author_id=author,
        created_at=iso(at),
        visibility=visibility,
        text="Hello",
        likes=0,
        comments=0,
        **more,
    )


def tombstone(post: Item) -> Item:
    """Return the tombstone of a deleted post."""
    kept = {name: post[name] for name in ("PK", "SK", "author_id", "created_at")}
    return {**kept, "deleted_at": iso(NOON), "expiresAt": 1}


def like_item(post: Item, user: str = "bob", at: datetime = NOON) -> Item:
    return _keyed(likes.like(_id(post), user), created_at=iso(at), **_of_post(post))


def comment_item(post: Item, comment_id: str, user: str = "bob", at: datetime = NOON, **more: Any) -> Item:
    """Return a comment. `more` can be the list `mentions`."""
    key = comments.comment(_id(post), comment_id)
    return _keyed(key, user_id=user, created_at=iso(at), text="Hi", text_len=2, **_of_post(post), **more)


def following_item(follower: str, followee: str, since: datetime = NOON) -> Item:
    return _keyed(follows.following(follower, followee), since=iso(since))


def inserted(item: Item) -> Change:
    return _change("INSERT", None, item)


def removed(item: Item, *, by_ttl: bool = False) -> Change:
    return _change("REMOVE", item, None, by_ttl)


def modified(old: Item, new: Item) -> Change:
    return _change("MODIFY", old, new)


def _change(kind: Any, old: Item | None, new: Item | None, by_ttl: bool = False) -> Change:
    keys = {name: (new or old or {})[name] for name in ("PK", "SK")}
    return Change(FEED.name, kind, keys, old, new, f"{next(_sequence):021}", NOON, by_ttl)


def _id(post: Item) -> str:
    return posts.post_parts(Key(post["PK"], post["SK"]))


def _of_post(post: Item) -> Item:
    return {"post_author": post["author_id"], "post_visibility": post["visibility"]}


def _keyed(key: Key, **attributes: Any) -> Item:
    return {"PK": key.partition, "SK": key.sort, **attributes}
