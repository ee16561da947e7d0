"""Connections of reference data: lists that a process reads as a whole and caches, sorted by name."""

from collections.abc import Mapping
from operator import itemgetter
from typing import Any

from datastore.model.access_patterns import AccessPattern
from resolvers.shared.context import Info
from resolvers.shared.paging import NO_VALUES, Connection, connection_of


def list_by_name(info: Info, pattern: AccessPattern, values: Mapping[str, Any] = NO_VALUES) -> Connection[Any]:
    """Return the connection of a list by name, for pages of `ReferenceTable.page`. `values`: see `connection_of`."""
    attributes = ("name", pattern.table.partition)
    return connection_of(info, pattern, itemgetter("record"), values, cursor_attributes=attributes)
