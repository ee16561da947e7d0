"""The data of the feed, equal in every run and written by the gateway's repositories."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.data import NOON, SEED, open_store
from datastore.database import Database, StoreOptions, open_database
from datastore.dynamodb.client import Client
from datastore.feeds.comments import Comments
from datastore.feeds.follows import Follow, Follows, edge_item
from datastore.feeds.likes import Likes
from datastore.feeds.posts import Post, Posts
from datastore.feeds.users import Users
from datastore.feeds.visibility import Viewer, Visibility, VisibilityPolicy
from datastore.keyspace.feeds.table import FEED
from datastore.keyspace.feeds.users import UPDATE_USER, user
from datastore.model.ids import uuid7

MEMORY_FOLDER = next((folder for folder in (Path("/dev/shm"),) if folder.is_dir()), None)  # None: the system's default
LONG_AGO = NOON - timedelta(days=30)
CONCURRENT_WRITES = 16
WORDS = (
    "Number {}: the new roastery by the harbour has opened, and the queue goes round the corner. Worth every minute: "
    "ask for the washed one from Huila, and bring a book. "
)


@asynccontextmanager
async def engine_on_file() -> AsyncIterator[Database]:
    """Start an engine with empty tables and an index of its stream.

    Without the index writes slow down as records accumulate, and only an engine on a file has it
    (datastore/engine/process.py). The file is in memory if the system has a folder for that.
    """
    with TemporaryDirectory(dir=MEMORY_FOLDER) as folder:
        async with open_database(StoreOptions(data_dir=Path(folder))) as database:
            await database.create_tables()
            yield database


def words(number: int, tags: Iterable[str] = ()) -> str:
    """Return a text of about 200 characters with tags."""
    return WORDS.format(number) + " ".join(f"#{tag}" for tag in tags)


class Writer:
    """Writes the actions of users at given times."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._rng = random.Random(SEED)
        self._written = 0

    async def user(self, user_id: str) -> None:
        bio = f"{user_id} roasts, pours and photographs coffee, and tells where to find a good one."
        avatar = f"https://images.example.org/avatars/{user_id}.jpg"
        store = open_store(self._client)
        await Users(store, LONG_AGO).create(user_id, name=user_id.title(), bio=bio, avatar_ref=avatar)

    async def follow(self, follower_id: str, author_id: str, moment: datetime = LONG_AGO) -> None:
        await Follows(open_store(self._client), moment).follow(follower_id, author_id)

    async def followed(self, author_id: str, followers: Iterable[str]) -> None:
        """Write the author's side of many follows, which the fan-out reads, and the author's follower count."""
        edges = [edge_item(Follow(follower, author_id, LONG_AGO)) for follower in followers]
        store = open_store(self._client)
        await store.write_all(FEED, puts=edges)
        await store.update(UPDATE_USER, user(author_id), update="SET followers = :number", number=len(edges))

    async def post(
        self,
        post_id: str,
        author_id: str,
        moment: datetime,
        tags: Iterable[str],
        visibility: Visibility = Visibility.PUBLIC,
    ) -> Post:
        store, number = open_store(self._client), self._number()
        posts = Posts(store, moment, VisibilityPolicy(store, Viewer(author_id)))
        media = f"https://images.example.org/posts/{post_id}.jpg"
        text = words(number, tags)
        return await posts.create(post_id, author_id=author_id, text=text, visibility=visibility, media_ref=media)

    async def like(self, post: Post, user_id: str, moment: datetime) -> None:
        await Likes(open_store(self._client), moment).like(post, user_id)

    async def comment(self, post: Post, user_id: str, moment: datetime) -> None:
        number = self._number()
        comment_id = uuid7(moment, str(self._rng.getrandbits(128)))
        await Comments(open_store(self._client), moment).add(post, comment_id, user_id, words(number), ())

    def _number(self) -> int:
        self._written += 1
        return self._written


async def gather_writes(writes: Iterable[Awaitable[object]]) -> None:
    """Await all writes, at most `CONCURRENT_WRITES` at a time."""
    slots = asyncio.Semaphore(CONCURRENT_WRITES)

    async def run(write: Awaitable[object]) -> None:
        async with slots:
            await write

    await asyncio.gather(*[run(write) for write in writes])


@dataclass(frozen=True, slots=True)
class PlannedPost:
    """A post to write."""

    post_id: str
    author_id: str
    tags: tuple[str, ...]
    visibility: Visibility = Visibility.PUBLIC
