"""What the fan-out asks of the tables: an author's followers, what these shall have in their feeds, how far it is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Protocol

from datastore.dynamodb.codec import Item
from datastore.dynamodb.records import readable
from datastore.feeds.follows import Follow, edge_from, following_from
from datastore.feeds.home_feeds import entry_item, is_source, source_item
from datastore.feeds.posts import Post, is_live
from datastore.feeds.visibility import Visibility
from datastore.keyspace.feeds import follows as follow_keys
from datastore.keyspace.feeds import home_feeds as keys
from datastore.keyspace.feeds import pipeline as pipeline_keys
from datastore.keyspace.feeds import posts as post_keys
from datastore.keyspace.feeds import users as user_keys
from datastore.model.composite_keys import Key
from datastore.model.timestamps import from_iso, iso, to_seconds
from datastore.session.store import Store

PROGRESS_LIFETIME = timedelta(days=3)
FIRST_MOMENT, LAST_MOMENT = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)

# Followers by id, and since when each follows: None for one who does not, or only since after what is placed.
Standing = Mapping[str, datetime | None]


@dataclass(frozen=True, slots=True)
class Author:
    """How an author's posts get into feeds. Both moments None: each by a fan-out.

    Since `merging_since` each follower gets a source. With `merged_since` all have one, and no post of that moment or
    later has entries.
    """

    followers: int
    merging_since: datetime | None
    merged_since: datetime | None


@dataclass(frozen=True, slots=True)
class FanOutProgress:
    """How far a walk over an author's followers has come.

    The page that ends with the edge `through` is being written: those `followers` may have what they shall not have.
    All pages before it are done. With `gone` it is the walk that takes a post out again which was deleted on its way:
    the one that put it in has ended.
    """

    through: str | None = None
    followers: tuple[str, ...] = ()
    done: bool = False
    gone: bool = False


@dataclass(frozen=True, slots=True)
class FollowerPage:
    """Follows of one author, by follower. `through` is where the next page starts, if there is `more`."""

    follows: list[Follow]
    through: str | None
    more: bool


class Placement(Protocol):
    """What followers of an author shall have in their feeds; who follows only since after `until` is no matter."""

    @property
    def author_id(self) -> str: ...
    @property
    def until(self) -> datetime: ...
    def key(self, follower_id: str) -> Key: ...
    def item(self, follower_id: str, since: datetime) -> Item | None: ...


@dataclass(frozen=True, slots=True)
class PostEntry:
    """The entry of a post in every feed, or in none if it is not `wanted`.

    `moment` is the time of the post as its item has it. Entries have the same text, so that an entry and a merged post
    have one key, also where another program stored the post with whole seconds.
    """

    author_id: str
    post_id: str
    moment: str
    wanted: bool = True
    followers_only: bool = False

    @property
    def created_at(self) -> datetime:
        return from_iso(self.moment)

    @property
    def until(self) -> datetime:
        return self.created_at

    def key(self, follower_id: str) -> Key:
        return keys.entry(follower_id, self.moment, self.post_id)

    def item(self, follower_id: str, since: datetime) -> Item | None:
        if not self.wanted:
            return None
        return entry_item(follower_id, self.author_id, self.moment, self.post_id, followers_only=self.followers_only)


@dataclass(frozen=True, slots=True)
class PostPage:
    """The entries of an author's posts, those that are and those to be, oldest first; where the next page starts."""

    posts: list[PostEntry]
    next_start: Item | None


@dataclass(frozen=True, slots=True)
class AuthorSource:
    """The source of an author in every feed."""

    author_id: str
    until: datetime = LAST_MOMENT

    def key(self, follower_id: str) -> Key:
        return keys.source(follower_id, self.author_id)

    def item(self, follower_id: str, since: datetime) -> Item:
        return source_item(follower_id, self.author_id, iso(since))


class FanOuts:
    """One method for each access pattern."""

    def __init__(self, store: Store, now: datetime) -> None:
        self._store = store
        self._now = now

    async def author(self, author_id: str) -> Author:
        """FEED-P4: an author as they are now."""
        item = await self._store.get(user_keys.AUTHOR, user_keys.user(author_id)) or {}
        return Author(int(item.get("followers", 0)), _moment(item, "merging_since"), _moment(item, "merged_since"))

    async def is_live(self, post_id: str) -> bool:
        """FEED-P4: whether a post is there now."""
        return is_live(await self._store.get(post_keys.IS_LIVE, post_keys.post(post_id)))

    async def following(self, follower_id: str, author_id: str) -> Follow | None:
        """FEED-P4: the follow as it is now."""
        item = await self._store.get(follow_keys.FOLLOWING_NOW, follow_keys.following(follower_id, author_id))
        return None if item is None else following_from(item)

    async def followers(self, author_id: str, after: str | None, limit: int) -> FollowerPage:
        """FEED-P4: a page of an author's followers, behind the edge `after`."""
        partition = follow_keys.followee(author_id)
        page = await self._store.query(
            follow_keys.EDGES,
            {"partition": partition, "prefix": follow_keys.FOLLOWER_PREFIX},
            start=None if after is None else {"PK": partition, "SK": after},
            limit=limit,
        )
        through = page.items[-1]["SK"] if page.items else after
        return FollowerPage(readable(edge_from, page.items), through, page.next_start is not None)

    async def standing(self, placement: Placement, followers: Sequence[str]) -> Standing:
        """FEED-P4: since when each of these follows, who are neighbours among the author's followers."""
        author_id = placement.author_id
        values = {
            "partition": follow_keys.followee(author_id),
            "first": min(follow_keys.edge(author_id, one, FIRST_MOMENT).sort for one in followers),
            "last": max(follow_keys.edge(author_id, one, LAST_MOMENT).sort for one in followers),
        }
        edges = [item async for item in self._store.query_all(follow_keys.EDGES_AGAIN, values)]
        found = concerned(placement, readable(edge_from, edges))
        return {follower: found.get(follower) for follower in followers}

    async def place(self, placement: Placement, standing: Standing) -> None:
        """FEED-P4: write what these shall have, and take it from those who do not follow."""
        items = {
            follower: None if since is None else placement.item(follower, since) for follower, since in standing.items()
        }
        await self._store.write_all(
            keys.FAN_OUT,
            puts=[item for item in items.values() if item is not None],
            deletes=[placement.key(follower) for follower, item in items.items() if item is None],
        )

    async def posts_since(self, author_id: str, since: datetime, start: Item | None, limit: int) -> PostPage:
        """FEED-P4: a page of the posts an author wrote since then for others to see."""
        values = {
            "partition": post_keys.by_author(author_id),
            "since": iso(since),
            "private": Visibility.PRIVATE.value,
        }
        attributes = "GSI1SK", "visibility"
        page = await self._store.query(post_keys.POSTS_SINCE, values, start=start, limit=limit, attributes=attributes)
        posts = [_entry_of(author_id, item) for item in page.items]
        # As text, whole seconds sort behind the milliseconds of their second.
        return PostPage([post for post in posts if post.created_at >= since], page.next_start)

    async def entries_of(
        self, follower_id: str, author_id: str, since: datetime, start: Item | None, limit: int
    ) -> PostPage:
        """FEED-P4: a page of the posts of an author that are in a feed, since then; `limit` entries are looked at."""
        values = {"partition": keys.feed(follower_id), "since": iso(since), "author": author_id}
        page = await self._store.query(keys.ENTRIES_BY_AUTHOR, values, start=start, limit=limit)
        entries = [item for item in page.items if not is_source(item)]
        posts = readable(partial(_listed, author_id), entries)
        return PostPage([post for post in posts if post.created_at >= since], page.next_start)

    async def write(self, *, puts: Sequence[Item] = (), deletes: Sequence[Key] = ()) -> None:
        """FEED-P4: put and delete entries and sources."""
        await self._store.write_all(keys.FAN_OUT, puts=puts, deletes=deletes)

    async def progress(self, job: str) -> FanOutProgress | None:
        """FEED-P4: how far a walk has come, None before its first page."""
        item = await self._store.get(pipeline_keys.PROGRESS, pipeline_keys.progress(job))
        if item is None:
            return None
        followers = tuple(item.get("followers", ()))
        return FanOutProgress(item.get("through"), followers, done=bool(item.get("done")), gone=bool(item.get("gone")))

    async def save(self, job: str, progress: FanOutProgress) -> None:
        """FEED-P4: note how far a walk has come."""
        key = pipeline_keys.progress(job)
        item: dict[str, Any] = {"PK": key.partition, "SK": key.sort, "done": progress.done, "gone": progress.gone}
        if progress.through is not None:
            item |= {"through": progress.through, "followers": list(progress.followers)}
        item["expiresAt"] = to_seconds(self._now + PROGRESS_LIFETIME)
        await self._store.put(pipeline_keys.SAVE_PROGRESS, item)

    async def begin_merging(self, author_id: str) -> datetime:
        """FEED-P4: mark an author whose followers shall get sources; when that was done first."""
        written = await self._store.update(user_keys.BEGIN_MERGING, user_keys.user(author_id), now=iso(self._now))
        assert written.item is not None  # users are never deleted
        return from_iso(written.item["merging_since"])

    async def merge(self, author_id: str, since: datetime) -> None:
        """FEED-P4: note that all followers have sources. A repeat changes nothing."""
        await self._store.update(user_keys.MERGE, user_keys.user(author_id), since=iso(since))


def entry_of_post(post: Post, image: Mapping[str, Any]) -> PostEntry:
    """Return the entry of a post in feeds. `image` is the item of the post."""
    moment = post_keys.position_parts(image["GSI1SK"])[0] if "GSI1SK" in image else image["created_at"]
    followers_only = post.visibility is Visibility.FOLLOWERS
    return PostEntry(post.author_id, post.post_id, moment, followers_only=followers_only)


def concerned(placement: Placement, follows: Sequence[Follow]) -> dict[str, datetime]:
    """Since when those follow for whom something is placed."""
    return {follow.follower_id: follow.since for follow in follows if follow.since <= placement.until}


def _entry_of(author_id: str, post: Mapping[str, Any]) -> PostEntry:
    moment, post_id = post_keys.position_parts(post["GSI1SK"])
    followers_only = post["visibility"] == Visibility.FOLLOWERS
    return PostEntry(author_id, post_id, moment, followers_only=followers_only)


def _listed(author_id: str, entry: Mapping[str, Any]) -> PostEntry:
    """Return the entry of a feed as the entry of its post. Raises `ValueError` if its moment cannot be read."""
    moment, post_id = keys.entry_parts(entry["SK"])
    from_iso(moment)
    return PostEntry(author_id, post_id, moment)


def _moment(item: Mapping[str, Any], name: str) -> datetime | None:
    return from_iso(item[name]) if name in item else None
