"""Attributes that are computed on first use."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class LazyAttribute(Generic[T]):
    """A `cached_property` without the lock that it has in Python 3.11.

    The owner lists the names of its computed attributes in `lazy_names`.
    """

    __slots__ = ("_compute", "_name")

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self._name = compute.__name__

    @overload
    def __get__(self, instance: None, owner: type) -> "LazyAttribute[T]": ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> "T | LazyAttribute[T]":
        if instance is None:
            return self
        attributes = instance.__dict__
        value = attributes[self._name] = self._compute(instance)
        attributes["lazy_names"] += (self._name,)
        return value
