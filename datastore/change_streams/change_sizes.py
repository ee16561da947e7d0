"""Estimates of the memory that changes take."""

from typing import Any

from datastore.change_streams.change import Change


def size_of(change: Change) -> int:
    """Return an estimate of the bytes that a change takes in memory."""
    size = 500
    values: list[Any] = [image for image in (change.old, change.new) if image is not None]
    for value in values:  # the list grows during the loop
        if isinstance(value, (str, bytes)):
            size += 50 + len(value)
        elif isinstance(value, dict):
            size += 64 + 50 * len(value) + sum(map(len, value))
            values += value.values()
        elif isinstance(value, (list, set, tuple, frozenset)):
            size += 64
            values += value
        else:
            size += 32
    return size
