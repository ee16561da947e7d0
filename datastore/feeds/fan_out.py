"""Reads and writes of the fan-out: an author's followers, the items in their feeds, and the progress of a fan-out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Protocol

from datastore.dynamodb.codec import Item
from datastore.dynamodb.records import readable_records
from datastore.feeds.follows import Follow, edge_from
from datastore.feeds.home_feeds import MergedAuthor, entry_item, is_source
from datastore.feeds.posts import Post, is_live
from datastore.feeds.visibility import Visibility
from datastore.items.repository import Repository
from datastore.keyspace.feeds import follows as follow_keys
from datastore.keyspace.feeds import home_feeds as keys
from datastore.keyspace.feeds import pipeline as pipeline_keys
from datastore.keyspace.feeds import posts as post_keys
from datastore.keyspace.feeds import users as user_keys
from datastore.model.composite_keys import Key
from datastore.model.timestamps import from_iso, iso, to_seconds

PROGRESS_LIFETIME = timedelta(days=3)
FIRST_MOMENT, LAST_MOMENT = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)

# The time since which each follower follows, by id. None for a user who does not, or whose follow is too recent.
FollowTimes = Mapping[str, datetime | None]


@dataclass(frozen=True, slots=True)
class Author:
    """The number of an author's followers, and the state of the author's promotion to fan-out on read."""

    followers: int
    #: Since this time each new follower gets a source. None: posts are fanned out on write.
    merging_since: datetime | None
    #: All followers have a source. Posts of this time and later have no entries.
    merged_since: datetime | None


@dataclass(frozen=True, slots=True)
class FanOutProgress:
    """The checkpoint of a fan-out over an author's followers.

    The page that ends with the edge `through` is being written. All pages before it are complete.
    """

    through: str | None = None
    #: The followers of the page being written, some of whose feeds may be wrong.
    followers: tuple[str, ...] = ()
    done: bool = False
    #: The fan-out removes a post that was deleted during its fan-out, which has ended.
    is_withdrawal: bool = False


@dataclass(frozen=True, slots=True)
class FollowerPage:
    """A page of an author's followers, by id. The next page starts after `through`, if there are `more`."""

    follows: list[Follow]
    through: str | None
    more: bool


class Placement(Protocol):
    """An item for the feed of each follower of an author whose follow is not later than `until`."""

    @property
    def author_id(self) -> str: ...
    @property
    def until(self) -> datetime: ...
    def key(self, follower_id: str) -> Key: ...
    def item(self, follower_id: str, since: datetime) -> Item | None: ...


@dataclass(frozen=True, slots=True)
class PostEntry:
    """The entry of a post in the feeds of all followers."""

    author_id: str
    post_id: str
    #: The time of the post in the form of its item. Entries have the same text, so that an entry and a merged post have
    #: one key, also if another program stored the post with whole seconds.
    moment: str
    #: The entry is deleted from all feeds.
    is_removed: bool = False
    followers_only: bool = False

    @property
    def created_at(self) -> datetime:
        return from_iso(self.moment)

    @property
    def until(self) -> datetime:
        return self.created_at

    def key(self, follower_id: str) -> Key:
        return keys.entry_of(follower_id, self.moment, self.post_id)

    def item(self, follower_id: str, since: datetime) -> Item | None:
        if self.is_removed:
            return None
        return entry_item(follower_id, self.author_id, self.moment, self.post_id, followers_only=self.followers_only)


@dataclass(frozen=True, slots=True)
class PostPage:
    """A page of entries of an author's posts, oldest first, stored or not, and the start of the next page."""

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
        return MergedAuthor(follower_id, self.author_id, iso(since)).item()


class FanOuts(Repository):
    """One method for each access pattern."""

    async def author(self, author_id: str) -> Author:
        """FEED-P4: return the current state of an author."""
        item = await self._store.get(user_keys.AUTHOR, user_keys.user(author_id)) or {}
        return Author(int(item.get("followers", 0)), _moment(item, "merging_since"), _moment(item, "merged_since"))

    async def is_live(self, post_id: str) -> bool:
        """FEED-P4: return whether a post is stored and not deleted."""
        return is_live(await self._store.get(post_keys.POST_EXISTS, post_keys.post(post_id)))

    async def following(self, follower_id: str, author_id: str) -> Follow | None:
        """FEED-P4: return the current follow, or None."""
        item = await self._store.get(follow_keys.FOLLOW_EXISTS, follow_keys.following(follower_id, author_id))
        return None if item is None else Follow.decoder(item)

    async def followers(self, author_id: str, after: str | None, limit: int) -> FollowerPage:
        """FEED-P4: return a page of an author's followers after the edge `after`."""
        values = follow_keys.edge.values_of(author_id)
        start = None if after is None else {"PK": values["partition"], "SK": after}
        page = await self._store.query(follow_keys.EDGES, values, start=start, limit=limit)
        through = page.items[-1]["SK"] if page.items else after
        return FollowerPage(readable_records(edge_from, page.items), through, page.next_start is not None)

    async def follow_times(self, placement: Placement, followers: Sequence[str]) -> FollowTimes:
        """FEED-P4: return the current follow times of adjacent followers of the author."""
        author_id = placement.author_id
        values = {
            "partition": follow_keys.edge.partition_of(author_id),
            "first": min(follow_keys.edge(author_id, follower, FIRST_MOMENT).sort for follower in followers),
            "last": max(follow_keys.edge(author_id, follower, LAST_MOMENT).sort for follower in followers),
        }
        edges = [item async for item in self._store.query_all(follow_keys.RECHECK_EDGES, values)]
        times = affected_followers(placement, readable_records(edge_from, edges))
        return {follower: times.get(follower) for follower in followers}

    async def place(self, placement: Placement, follow_times: FollowTimes) -> None:
        """FEED-P4: write the placement to the feeds of followers, and delete it from the feeds of other users."""
        items = {
            follower: None if since is None else placement.item(follower, since)
            for follower, since in follow_times.items()
        }
        await self._store.write_all(
            keys.FAN_OUT,
            puts=[item for item in items.values() if item is not None],
            deletes=[placement.key(follower) for follower, item in items.items() if item is None],
        )

    async def posts_since(self, author_id: str, since: datetime, start: Item | None, limit: int) -> PostPage:
        """FEED-P4: return a page of the author's posts of `since` and later that other users may see."""
        values = {
            "partition": post_keys.post_by_author.partition_of(author_id),
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
        """FEED-P4: return the author's posts of `since` and later among the next `limit` entries of a feed."""
        values = {"partition": keys.entry.partition_of(follower_id), "since": iso(since), "author": author_id}
        page = await self._store.query(keys.ENTRIES_BY_AUTHOR, values, start=start, limit=limit)
        entries = [item for item in page.items if not is_source(item)]
        posts = readable_records(partial(_post_of_entry, author_id), entries)
        return PostPage([post for post in posts if post.created_at >= since], page.next_start)

    async def write(self, *, puts: Sequence[Item] = (), deletes: Sequence[Key] = ()) -> None:
        """FEED-P4: put and delete entries and sources."""
        await self._store.write_all(keys.FAN_OUT, puts=puts, deletes=deletes)

    async def progress(self, job: str) -> FanOutProgress | None:
        """FEED-P4: return the progress of a fan-out, or None before its first page."""
        item = await self._store.get(pipeline_keys.PROGRESS, pipeline_keys.progress(job))
        if item is None:
            return None
        followers = tuple(item.get("followers", ()))
        done, is_withdrawal = bool(item.get("done")), bool(item.get("gone"))
        return FanOutProgress(item.get("through"), followers, done=done, is_withdrawal=is_withdrawal)

    async def save(self, job: str, progress: FanOutProgress) -> None:
        """FEED-P4: store the progress of a fan-out."""
        item = pipeline_keys.progress.item(job) | {"done": progress.done, "gone": progress.is_withdrawal}
        if progress.through is not None:
            item |= {"through": progress.through, "followers": list(progress.followers)}
        item["expiresAt"] = to_seconds(self._now + PROGRESS_LIFETIME)
        await self._store.put(pipeline_keys.SAVE_PROGRESS, item)

    async def start_merging(self, author_id: str) -> datetime:
        """FEED-P4: mark an author whose followers get sources. Return the time of the first mark."""
        written = await self._store.update(user_keys.START_MERGING, user_keys.user(author_id), now=iso(self._now))
        assert written.item is not None  # users are never deleted
        return from_iso(written.item["merging_since"])

    async def complete_merging(self, author_id: str, since: datetime) -> None:
        """FEED-P4: mark an author all of whose followers have sources. A repeat changes nothing."""
        await self._store.update(user_keys.COMPLETE_MERGING, user_keys.user(author_id), since=iso(since))


def entry_of_post(post: Post, image: Mapping[str, Any]) -> PostEntry:
    """Return the entry of a post in feeds. `image` is the item of the post."""
    moment = post_keys.position_parts(image["GSI1SK"])[0] if "GSI1SK" in image else image["created_at"]
    followers_only = post.visibility is Visibility.FOLLOWERS
    return PostEntry(post.author_id, post.post_id, moment, followers_only=followers_only)


def affected_followers(placement: Placement, follows: Sequence[Follow]) -> dict[str, datetime]:
    """Return the follow times of the followers whose feeds the placement concerns."""
    return {follow.follower_id: follow.since for follow in follows if follow.since <= placement.until}


def _entry_of(author_id: str, post: Mapping[str, Any]) -> PostEntry:
    moment, post_id = post_keys.position_parts(post["GSI1SK"])
    followers_only = post["visibility"] == Visibility.FOLLOWERS
    return PostEntry(author_id, post_id, moment, followers_only=followers_only)


def _post_of_entry(author_id: str, entry: Mapping[str, Any]) -> PostEntry:
    """Return the entry of a feed as the entry of its post. Raises `ValueError` if its moment cannot be read."""
    moment, post_id = keys.entry_parts(entry["SK"])
    from_iso(moment)
    return PostEntry(author_id, post_id, moment)


def _moment(item: Mapping[str, Any], name: str) -> datetime | None:
    return from_iso(item[name]) if name in item else None
