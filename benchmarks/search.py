"""`python -m benchmarks.search`: measure the CPU time of searches in the embedded index, and of indexing posts.

The words of the posts follow Zipf's law, like those of natural language: the most frequent word is in most posts, and
half of the vocabulary is in a few posts each. Runs with the same seed use the same posts.
"""

import argparse
import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path

from benchmarks.data import NOON
from datastore.feeds.search_entries import post_entry, version_of
from datastore.model.timestamps import iso
from datastore.search import Audience, Kind, SearchEntry
from datastore.search.queries import query_of
from datastore.search.sqlite_index import SqliteIndex

VOCABULARY = 15_000
WORDS = (5, 60)  # the fewest and most words of a post
HIDDEN = 0.3  # the fraction of posts that are private or for followers
USERS, FOLLOWEES = 5000, 300
BATCH = 500
PAGE = 26  # a page of 25 results, and one more that shows whether there is a next page
SYLLABLES = ("ka", "lo", "mi", "ne", "ru", "sta", "tor", "ven", "zi", "ha", "bre", "qui", "po", "da", "fel", "gon")


class Texts:
    """A generator of texts, and of queries with words from them."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self._words = sorted({self._word() for _ in range(2 * VOCABULARY)})
        self.rng.shuffle(self._words)
        self._words = self._words[:VOCABULARY]
        self._weights = [1 / (rank + 1) for rank in range(len(self._words))]

    def _word(self) -> str:
        return "".join(self.rng.choices(SYLLABLES, k=self.rng.randint(1, 5)))

    def words(self, count: int) -> list[str]:
        return self.rng.choices(self._words, self._weights, k=count)

    def post(self, number: int) -> SearchEntry:
        words = self.words(self.rng.randint(*WORDS))
        item = {
            "text": " ".join(words),
            "tags": [words[0]] if number % 3 == 0 else [],
            "created_at": iso(NOON + timedelta(seconds=number)),
            "author_id": f"user{number % USERS}",
            "visibility": self.rng.choice(("private", "followers")) if self.rng.random() < HIDDEN else "public",
        }
        return post_entry(f"post{number}", version_of(str(number)), item)

    def rank(self, least: int, most: int) -> str:
        return self._words[self.rng.randrange(least, most)]

    def queries(self) -> dict[str, Callable[[], str]]:
        """Return a generator for each kind of query. Queries for frequent words match most of the posts."""
        return {
            "one of the 20 most frequent words": lambda: self.rank(0, 20),
            "one rare word": lambda: self.rank(2000, VOCABULARY),
            "two frequent words": lambda: f"{self.rank(0, 50)} {self.rank(0, 50)}",
            "four frequent words": lambda: " ".join(self.rank(0, 100) for _ in range(4)),
            "a frequent and a rare word": lambda: f"{self.rank(0, 20)} {self.rank(2000, VOCABULARY)}",
            "three words by their frequency": lambda: " ".join(self.words(3)),
            "the first letter of a word": lambda: self.rank(0, VOCABULARY)[:1],
            "the first three letters": lambda: self.rank(0, VOCABULARY)[:3],
            "a tag": lambda: f"#{self.rank(0, 200)}",
            "a word that no post contains": lambda: "absent" + self.rank(0, 50),
        }


async def measured(index: SqliteIndex, queries: Iterable[str]) -> list[float]:
    """Return the CPU time of each search in milliseconds, over all threads."""
    milliseconds = []
    for number, text in enumerate(queries):
        caller = number % USERS
        followees = frozenset(f"user{(caller + step) % USERS}" for step in range(1, FOLLOWEES + 1))
        audience = Audience(None) if number % 2 else Audience(f"user{caller}", followees)
        began = time.process_time()
        await index.search(Kind.POSTS, query_of(text, tags=True), PAGE, None, audience)
        milliseconds.append(1000 * (time.process_time() - began))
    return milliseconds


async def fill(posts: int, texts: Texts, write: Callable[[list[SearchEntry]], object]) -> float:
    """Write posts to the index. Return the CPU time of each in microseconds."""
    began = time.process_time()
    for at in range(0, posts, BATCH):
        await write([texts.post(number) for number in range(at, min(posts, at + BATCH))])  # type: ignore[misc]
    return 1e6 * (time.process_time() - began) / posts


def line(name: str, milliseconds: list[float]) -> str:
    cuts = statistics.quantiles(milliseconds, n=100)
    return f"{name:<36}{len(milliseconds):>7}{cuts[49]:>9.2f}{cuts[94]:>9.2f}{max(milliseconds):>9.2f}"


async def main(posts: int, searches: int, seed: int) -> None:
    texts = Texts(seed)
    with tempfile.TemporaryDirectory() as folder:
        index = SqliteIndex(Path(folder) / "search" / "feed.sqlite")
        written = await fill(posts, texts, lambda entries: index.write(Kind.POSTS, entries))
        size = index.path.stat().st_size / 2**20
        print(f"{posts:,} posts: {written:.0f} µs of CPU to generate and index each; {size:.0f} MB on disk")
        print(f"{'CPU of a search, ms':<36}{'number':>7}{'p50':>9}{'p95':>9}{'most':>9}")
        everything: list[float] = []
        for name, make in texts.queries().items():
            milliseconds = await measured(index, [make() for _ in range(searches)])
            everything += milliseconds
            print(line(name, milliseconds))
        print(line("all", everything))
        await index.aclose()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--posts", type=int, default=100_000)
    parser.add_argument("--searches", type=int, default=200, help="searches of each kind")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    asyncio.run(main(given.posts, given.searches, given.seed))
