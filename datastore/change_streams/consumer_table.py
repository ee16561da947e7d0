"""The table in which consumers of streams store leases, marks of effects and dead letters."""

from dataclasses import dataclass

from datastore.items.keys import ItemKey
from datastore.model.access_patterns import AccessPattern


@dataclass(frozen=True, slots=True)
class ConsumerTable:
    """The access patterns and forms of keys of the consumers' items. All patterns are of one table."""

    #: Patterns of the leases of a stream's shards.
    list_leases: AccessPattern
    take_lease: AccessPattern
    renew_lease: AccessPattern
    checkpoint: AccessPattern
    end_shard: AccessPattern
    release_lease: AccessPattern
    #: The form of their keys: the ARN of the stream, and the shard.
    lease: ItemKey[str, str]
    #: The transaction of a mark and its effect.
    apply_effects: AccessPattern
    #: The forms of the key of a mark: the effect's name, or the name of the handler and item and the change's position.
    effect: ItemKey[str]
    change_effect: ItemKey[str, str]
    #: Patterns of the dead letters of a table.
    put_dead_letter: AccessPattern
    list_dead_letters: AccessPattern
    delete_dead_letter: AccessPattern
    #: The form of their keys: the table, the moment (ISO 8601), the padded sequence number and the id.
    dead_letter: ItemKey[str, str, str, str]
