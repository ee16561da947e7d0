"""The search index: its stream consumer, rebuilds beside it, and the files of the embedded index."""

import asyncio
import sqlite3
import stat
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from datastore.change_streams.change import encode_change
from datastore.change_streams.dead_letters import DeadLetters, letter_of
from datastore.change_streams.shards.shard_reader import stream_of
from datastore.database import Database, StoreOptions
from datastore.errors import Unavailable
from datastore.keyspace.feeds.pipeline import CONSUMER_TABLE
from datastore.keyspace.feeds.posts import POST_EXISTS
from datastore.keyspace.feeds.posts import post as post_key
from datastore.keyspace.feeds.table import FEED
from datastore.search import BuildReplaced, Kind, NoIndex, SearchEntry
from datastore.search.factory import search_index
from datastore.search.queries import query_of
from datastore.search.sqlite_index import SqliteIndex
from datastore.session.store import Store
from pipelines.consumer.consumer import Consumer, Instance
from pipelines.consumer.metrics import StreamMetrics
from pipelines.consumer.redrive import Redrive
from pipelines.feeds.handlers import feed_handlers
from pipelines.feeds.search import GROUP, SearchMetrics, SearchSync
from pipelines.feeds.search_rebuild import RebuildProgress, SearchRebuild
from tests.support.consumers import QUICK, leases_of, letters_of
from tests.support.feed_changes import delete_feed_records, put_feed_records, store_of
from tests.support.feed_items import inserted, like_item, modified, post_item, tombstone, user_item
from tests.support.moments import utc_now
from tests.support.served import NOON
from tests.support.until import until


class Flaky(SqliteIndex):
    """An index that can be made unavailable."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.away = False
        self.writes = 0

    async def write(self, kind: Kind, entries: Sequence[SearchEntry]) -> None:
        self.writes += 1
        if self.away:
            raise Unavailable("The search host is away.")
        await super().write(kind, entries)

    async def found(self, text: str, kind: Kind = Kind.POSTS) -> list[str]:
        return [hit.id for hit in await self.search(kind, query_of(text, tags=True), 1000)]


@pytest.fixture
async def index(tmp_path: Path) -> AsyncIterator[Flaky]:
    index = Flaky(tmp_path / "search" / "feed.sqlite")
    yield index
    await index.aclose()


class Syncing:
    """An instance of the consumer that can be killed."""

    def __init__(self, database: Database, index: SqliteIndex, name: str, leader: Consumer | None = None) -> None:
        self.figures = StreamMetrics()
        self._killed = False
        self._database = database
        metrics = SearchMetrics(self.figures.registry)
        this = Instance(self, database.prefix, self._store, name, utc_now)  # type: ignore[arg-type]
        handler = SearchSync(index, self._store, metrics)
        self.consumer = Consumer(this, FEED, [handler], metrics.stream, group=GROUP, leader=leader, pace=QUICK)

    def _store(self) -> Store:
        return store_of(self._database, self)  # type: ignore[arg-type]

    def kill(self) -> None:
        """Cut the instance off from the store, so that it releases no leases."""
        self._killed = True

    def __getattr__(self, name: str) -> object:
        return getattr(self._database.client, name)

    async def call(self, *arguments: object, **options: object) -> object:
        if self._killed:
            raise Unavailable("The process is no more.")
        return await self._database.client.call(*arguments, **options)  # type: ignore[arg-type]

    def figure(self, name: str, **labels: str) -> float | None:
        return self.figures.registry.get_sample_value(name, labels)


@asynccontextmanager
async def syncing(
    database: Database, index: SqliteIndex, name: str = "one", leader: Consumer | None = None
) -> AsyncIterator[Syncing]:
    instance = Syncing(database, index, name, leader)
    task = asyncio.create_task(instance.consumer.run())
    try:
        yield instance
    finally:
        task.cancel()
        await asyncio.wait([task])


async def finds(index: Flaky, text: str, ids: Sequence[str]) -> None:
    """Wait until a search finds these posts."""
    async with asyncio.timeout(50):
        while sorted(await index.found(text)) != sorted(ids):  # noqa: ASYNC110 - the stream has no event to await
            await asyncio.sleep(0.01)


def consumer_instance(database: Database, name: str) -> Instance:
    return Instance(database.client, database.prefix, lambda: store_of(database), name, utc_now)


def search_rebuild(database: Database, index: SqliteIndex, pages: list[RebuildProgress] | None = None) -> SearchRebuild:
    progress = [] if pages is None else pages
    return SearchRebuild(consumer_instance(database, "rebuild"), index, progress.append)


# The consumer


async def test_the_consumer_keeps_the_index_current(database: Database, index: Flaky) -> None:
    async with syncing(database, index) as instance:
        await put_feed_records(database, user_item("ada"), first := post_item("p1"), second := post_item("p2"))
        await finds(index, "hello", ["p1", "p2"])
        await put_feed_records(database, tombstone(first))
        await delete_feed_records(database, second)
        await finds(index, "hello", [])
        assert await index.found("ada", Kind.USERS) == ["ada"]
        assert instance.figure("search_indexed_total", kind="users") == 1
        assert (instance.figure("search_indexed_total", kind="posts") or 0) >= 4
        shards = [shard for shard in instance.consumer.working]
        await until(lambda: instance.figure("search_stream_lag_seconds", table=FEED.name, shard=shards[0]) == 0)


async def test_the_consumer_has_its_own_checkpoints(database: Database, index: Flaky) -> None:
    await put_feed_records(database, post_item("p1"))
    async with syncing(database, index):
        await finds(index, "hello", ["p1"])
    stream = await stream_of(database.client, FEED.name, database.prefix)

    assert await leases_of(database) == {}
    own = await leases_of(database, f"{stream} {GROUP}")
    assert [lease.owner for lease in own.values()] == [None]
    assert all(lease.checkpoint for lease in own.values())


@pytest.mark.proof
async def test_another_instance_continues_where_a_killed_one_stopped(database: Database, index: Flaky) -> None:
    async with syncing(database, index, "one") as first:
        await put_feed_records(database, *[post_item(f"p{number}") for number in range(10)])
        await finds(index, "hello", [f"p{number}" for number in range(10)])
        first.kill()
        await put_feed_records(database, *[post_item(f"p{number}") for number in range(10, 20)])
        await put_feed_records(database, tombstone(post_item("p0")))
        async with syncing(database, index, "two"):
            await finds(index, "hello", [f"p{number}" for number in range(1, 20)])


async def test_changes_during_an_outage_of_the_index_are_indexed_afterwards(database: Database, index: Flaky) -> None:
    index.away = True
    async with syncing(database, index) as instance:
        await put_feed_records(database, *[post_item(f"p{number}") for number in range(5)], tombstone(post_item("p3")))
        await until(lambda: (instance.figure("search_failures_total") or 0) >= 3)
        assert await index.found("hello") == []

        index.away = False
        await finds(index, "hello", ["p0", "p1", "p2", "p4"])
        assert instance.figure("search_stream_dead_letters_total", table=FEED.name, handler=GROUP) is None


async def test_counts_and_items_of_other_kinds_write_nothing(database: Database, index: Flaky) -> None:
    post = post_item("p1")
    liked = post | {"likes": 7}
    sync = SearchSync(index, lambda: store_of(database), SearchMetrics(StreamMetrics().registry))

    await sync.handle(
        [modified(post, liked), inserted(like_item(post)), inserted({"PK": "USER#a#UNREAD", "SK": "t#n"})]
    )

    assert index.writes == 0


async def test_changes_in_any_order_leave_the_newest(database: Database, index: Flaky) -> None:
    sync = SearchSync(index, lambda: store_of(database), SearchMetrics(StreamMetrics().registry))
    written = inserted(post_item("p1", tags=["old"]))
    changed = modified(post_item("p1", tags=["old"]), post_item("p1", tags=["new"]))
    gone = [inserted(post_item("p2", tags=["x"])), modified(post_item("p2", tags=["x"]), tombstone(post_item("p2")))]

    for change in (changed, written, gone[1], changed, gone[0], gone[1], written):
        await sync.handle([change])

    assert await index.found("#new") == await index.found("hello") == ["p1"]
    assert await index.found("#old") == []


async def test_posts_of_other_programs_are_read_with_their_tags_once_a_batch(database: Database, index: Flaky) -> None:
    meta = {
        "PK": "POST#o",
        "SK": "META",
        "author_id": "ada",
        "created_at": "2026-06-25T12:00:00Z",
        "visibility": "public",
    }
    tags = [{"PK": "POST#o", "SK": f"TAG#{name}"} for name in ("one", "two", "three")]
    await put_feed_records(database, meta, *tags)
    store = store_of(database)
    sync = SearchSync(index, lambda: store, SearchMetrics(StreamMetrics().registry))

    await sync.handle([inserted(meta), *map(inserted, tags)])

    assert await index.found("#two") == ["o"]
    assert [call.operation for call in store.meter.calls] == ["Query"]


@pytest.mark.parametrize("follows", [True, False])
async def test_an_unavailable_index_delays_no_counters(database: Database, index: Flaky, follows: bool) -> None:
    """This holds for a consumer that shares the feed consumer's reads, and for one that reads the stream itself."""
    index.away = True
    this = consumer_instance(database, "feed")
    feed = Consumer(this, FEED, feed_handlers(this.open_store, utc_now), StreamMetrics(), pace=QUICK)
    feeding = asyncio.create_task(feed.run())
    async with syncing(database, index, leader=feed if follows else None) as instance:
        await put_feed_records(database, user_item("ada"), post := post_item("p1"))
        await until(lambda: (instance.figure("search_failures_total") or 0) > 0)
        await put_feed_records(database, like_item(post))
        async with asyncio.timeout(50):
            while (await likes_of(database, "p1")) != 1:  # noqa: ASYNC110 - the stream has no event
                await asyncio.sleep(0.01)
        assert await index.found("hello") == []
        index.away = False
        await finds(index, "hello", ["p1"])
    feeding.cancel()
    await asyncio.wait([feeding])


async def likes_of(database: Database, post_id: str) -> int | None:
    item = await store_of(database).get(POST_EXISTS, post_key(post_id))
    return None if item is None else item["likes"]


async def test_a_dead_letter_of_the_index_is_replayed(database: Database, index: Flaky) -> None:
    change = inserted(post_item("p1", tags=["x"]))
    sync = SearchSync(index, lambda: store_of(database), SearchMetrics(StreamMetrics().registry))
    letter = letter_of(FEED.name, sync.name, encode_change(change), ValueError("refused"), 6, utc_now())
    await DeadLetters(store_of(database), CONSUMER_TABLE).bury(letter)

    assert await Redrive([sync], lambda: store_of(database), utc_now).replay(letter) is None
    assert await index.found("hello") == ["p1"]
    assert await letters_of(database) == []


# Rebuilds


async def test_a_rebuild_beside_the_consumer_loses_and_restores_no_post(database: Database, index: Flaky) -> None:
    """Posts are written and deleted during the rebuild. In the end the index agrees with the table."""
    await put_feed_records(
        database, *[post_item(f"p{number}") | {"text": "Hello " + "word " * 300} for number in range(60)]
    )
    async with syncing(database, index):
        await finds(index, "hello", [f"p{number}" for number in range(60)])
        alive = {f"p{number}" for number in range(60)}
        over = asyncio.Event()

        async def disturb() -> None:
            for number in range(60):
                await put_feed_records(database, post_item(f"n{number}"), tombstone(post_item(f"p{number}")))
                alive.add(f"n{number}")
                alive.discard(f"p{number}")
                if over.is_set():
                    break

        pages: list[RebuildProgress] = []
        disturbing = asyncio.create_task(disturb())
        for _ in range(3):
            await search_rebuild(database, index, pages).run()
        over.set()
        await disturbing
        await finds(index, "hello", sorted(alive))
        await search_rebuild(database, index).run()
        assert set(await index.found("hello")) == alive

    assert pages[-1].scanned >= 60
    assert pages[-1].damaged == 0


async def test_a_rebuild_indexes_changes_that_the_index_missed(database: Database, index: Flaky) -> None:
    meta = {
        "PK": "POST#o",
        "SK": "META",
        "author_id": "ada",
        "created_at": "2026-06-25T12:00:00Z",
        "visibility": "public",
    }
    await put_feed_records(database, post_item("p1"), user_item("ada"), meta, {"PK": "POST#o", "SK": "TAG#one"})
    await put_feed_records(database, {"PK": "POST#o", "SK": "COMMENT#1"}, tombstone(post_item("p2")))
    await index.write(Kind.POSTS, [SearchEntry("stray", "9" * 40, 1, "hello")])

    done = await search_rebuild(database, index).run()

    assert (done.posts, done.users, done.damaged) == (2, 1, 0)
    assert await index.found("hello") == ["p1"]
    assert await index.found("#one") == ["o"]
    assert await index.found("ada", Kind.USERS) == ["ada"]
    status = await index.status()
    assert status.source == await stream_of(database.client, FEED.name, database.prefix)
    assert status.building is None


async def test_items_of_one_post_on_two_pages_of_the_scan_are_one_entry(database: Database, index: Flaky) -> None:
    """A page ends after a megabyte."""
    meta = {
        "PK": "POST#o",
        "SK": "META",
        "author_id": "a",
        "created_at": "2026-06-25T12:00:00Z",
        "visibility": "public",
    }
    large = [{"PK": "POST#o", "SK": f"TAG#{number:02}", "padding": "x" * 300_000} for number in range(8)]
    await put_feed_records(database, meta, *large)

    pages: list[RebuildProgress] = []
    await search_rebuild(database, index, pages).run()

    assert len(pages) > 1
    assert await index.found("#00") == await index.found("#07") == ["o"]


async def test_an_index_is_built_once_for_a_table(database: Database, index: Flaky) -> None:
    await put_feed_records(database, post_item("p1"))
    await search_rebuild(database, index).run_if_needed()
    assert await index.found("hello") == ["p1"]

    await put_feed_records(database, post_item("p2"))
    await search_rebuild(database, index).run_if_needed()
    assert await index.found("hello") == ["p1"]  # the consumer wrote that one

    build = await index.begin_rebuild()
    await index.finish_rebuild(build, "arn:of:another:table", NOON)
    await search_rebuild(database, index).run_if_needed()
    assert sorted(await index.found("hello")) == ["p1", "p2"]


async def test_a_rebuild_that_another_replaces_stops(database: Database, index: Flaky) -> None:
    await put_feed_records(database, post_item("p1"))

    class Slow(SearchRebuild):
        async def _fill(self, *arguments: object) -> None:
            await index.begin_rebuild()
            await super()._fill(*arguments)  # type: ignore[arg-type]

    slow = Slow(consumer_instance(database, "rebuild"), index)
    with pytest.raises(BuildReplaced, match="Another rebuild"):
        await slow.run()


# The file


async def test_only_the_owner_can_access_the_file(index: Flaky) -> None:
    await index.write(Kind.POSTS, [SearchEntry("a", "1", 1, "hello")])

    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in [index.path.parent, *index.path.parent.iterdir()]}
    assert modes == {"search": 0o700, "feed.sqlite": 0o600, "feed.sqlite-wal": 0o600, "feed.sqlite-shm": 0o600}


async def test_a_folder_that_others_may_use_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "search"
    folder.mkdir()
    folder.chmod(0o777)
    index = SqliteIndex(folder / "feed.sqlite")
    with pytest.raises(Unavailable):
        await index.status()
    await index.aclose()
    assert list(folder.iterdir()) == []


async def test_a_damaged_file_is_replaced_and_built_again(
    database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "search" / "feed.sqlite"
    path.parent.mkdir(mode=0o700)
    path.write_bytes(b"no database " * 1000)
    await put_feed_records(database, post_item("p1"))
    index = Flaky(path)

    assert await index.found("hello") == []
    await search_rebuild(database, index).run_if_needed()
    assert await index.found("hello") == ["p1"]
    assert "is damaged" in caplog.text
    await index.aclose()


async def test_a_file_of_another_version_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "search" / "feed.sqlite"
    path.parent.mkdir(mode=0o700)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    index = Flaky(path)

    assert await index.found("hello") == []
    await index.aclose()


async def test_processes_share_the_file(index: Flaky) -> None:
    """Each index has its own connections: a search reads one snapshot, which includes the other's writes."""
    other = Flaky(index.path)
    await asyncio.gather(
        *[one.write(Kind.POSTS, [SearchEntry(f"{n}", "1", n, "hello")]) for n in range(40) for one in (index, other)]
    )
    build = await other.begin_rebuild()
    await other.fill(build, Kind.POSTS, [SearchEntry("new", "", 1, "hello")])
    assert len(await index.found("hello")) == 40
    await other.finish_rebuild(build, "stream", NOON)
    assert await index.found("hello") == ["new"]
    await other.aclose()


async def test_an_index_opens_while_another_process_creates_the_file(
    index: Flaky, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.path.parent.mkdir(mode=0o700, exist_ok=True)
    other = sqlite3.connect(index.path, isolation_level=None, check_same_thread=False)
    index.path.chmod(0o600)
    other.execute("BEGIN IMMEDIATE")

    def end_transaction(_seconds: float) -> None:
        other.execute("CREATE TABLE created (first)")
        other.execute("COMMIT")

    clock = SimpleNamespace(monotonic=time.monotonic, sleep=end_transaction)
    monkeypatch.setattr("datastore.search.sqlite_index.time", clock)
    await index.write(Kind.POSTS, [SearchEntry("1", "1", 1, "hello")])
    other.close()
    assert await index.found("hello") == ["1"]


async def test_in_aws_there_is_no_index_without_a_url(database: Database) -> None:
    index = search_index(StoreOptions("aws", region="eu-central-1"), None)
    assert isinstance(index, NoIndex)
    for refused in (index.status(), index.begin_rebuild(), index.search(Kind.POSTS, query_of("word", tags=True), 1)):
        with pytest.raises(Unavailable, match="GATEWAY_SEARCH_URL"):
            await refused
