"""Estimates of the memory that changes take."""

from typing import Any

from datastore.change_streams.change import Change


def size_of(change: Change) -> int:
    """Return an estimate of the bytes that a change takes in memory."""
    return 500 + sum(_bytes(image) for image in (change.old, change.new) if image is not None)


def _bytes(value: Any) -> int:
    if isinstance(value, (str, bytes)):
        return 50 + len(value)
    if isinstance(value, dict):
        return 64 + sum(50 + len(key) + _bytes(item) for key, item in value.items())
    if isinstance(value, (list, set, tuple, frozenset)):
        return 64 + sum(map(_bytes, value))
    return 32
