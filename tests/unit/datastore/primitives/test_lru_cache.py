"""Tests of the cache that evicts its least recently used entries."""

import pytest

from datastore.primitives.lru_cache import LruCache


def keys_of(cache: LruCache[str, int]) -> list[str]:
    """Return the keys, the least recently used first, and empty the cache."""
    keys = []
    while len(cache):
        keys.append(cache.least_recent())
        cache.pop(keys[-1])
    return keys


def test_the_least_recently_used_entry_is_evicted() -> None:
    cache = LruCache[str, int](3)
    for number, key in enumerate("abc"):
        cache.put(key, number)

    assert cache.get("a") == 0
    cache.put("d", 3)

    assert (cache.get("b"), "b" in cache, len(cache)) == (None, False, 3)
    assert keys_of(cache) == ["c", "a", "d"]


def test_a_peek_is_no_use_and_a_replacement_is() -> None:
    cache = LruCache[str, int](2)
    cache.put("a", 0)
    cache.put("b", 1)

    assert (cache.peek("a"), cache.peek("x")) == (0, None)
    assert cache.least_recent() == "a"
    cache.put("a", 2)

    assert cache.peek("a") == 2
    assert keys_of(cache) == ["b", "a"]


def test_sizes_are_limited_and_counted_once() -> None:
    cache = LruCache[str, int](max_size=10, size_of=lambda key, value: len(key) + value)
    cache.put("a", 4)
    cache.put("b", 3)
    assert cache.size == 9

    cache.put("b", 4)
    assert (cache.size, len(cache)) == (10, 2)
    cache.put("c", 0)

    assert (cache.size, cache.peek("a"), cache.pop("b"), cache.pop("b"), cache.size) == (6, None, 4, None, 1)
    cache.clear()
    assert (cache.size, len(cache)) == (0, 0)


def test_an_entry_larger_than_the_limit_is_not_kept() -> None:
    cache = LruCache[str, int](max_size=10, size_of=lambda _, value: value)
    cache.put("a", 4)

    cache.put("a", 11)

    assert (cache.size, len(cache)) == (0, 0)
    with pytest.raises(StopIteration):
        cache.least_recent()


def test_an_entry_larger_than_the_limit_evicts_no_other() -> None:
    cache = LruCache[str, int](max_size=10, size_of=lambda _, value: value)
    cache.put("a", 4)

    cache.put("b", 11)

    assert (cache.peek("a"), cache.peek("b"), cache.size) == (4, None, 4)
