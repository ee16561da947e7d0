"""Updates of stored items with a version."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from datastore.items.stored_item import StoredItem
from datastore.model.access_patterns import AccessPattern
from datastore.model.composite_keys import Key
from datastore.session.optimistic_locking import updated_record, version_values, versioned_update
from datastore.session.store import Store

T = TypeVar("T", bound=StoredItem)


@dataclass(frozen=True, slots=True)
class ItemChange(Generic[T]):
    """A change of fields of a stored item, named as in its class. None removes a value."""

    item: type[T]
    changes: Mapping[str, Any]
    #: The version that the item must have, None for any.
    expected: int | None = None
    #: Further fields to set, such as the time. They do not show whether an ambiguous attempt was applied.
    stamps: Mapping[str, Any] = field(default_factory=dict)


async def update_item(
    store: Store, pattern: AccessPattern, key: Key, change: ItemChange[T], missing: Callable[[], Exception]
) -> T:
    """Apply a change, and increment the version. Return the changed record.

    Raises:
        Outdated: The item has another version than the expected one.
        The error of `missing`: There is no such item.
    """
    attributes = change.item.attributes(change.changes)
    expression, values = versioned_update({**attributes, **change.item.attributes(change.stamps)})
    written = await store.update(pattern, key, update=expression, **values, **version_values(change.expected))
    return updated_record(written, change.expected, attributes, change.item.decoder, missing)
