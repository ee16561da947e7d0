"""The table in which consumers of streams store leases, marks of effects and dead letters."""

from collections.abc import Callable
from dataclasses import dataclass

from datastore.model.access_patterns import AccessPattern
from datastore.model.composite_keys import Key


@dataclass(frozen=True, slots=True)
class ConsumerTable:
    """The access patterns and key functions of the consumers' items. All patterns are of one table."""

    #: Patterns of the leases of a stream's shards.
    list_leases: AccessPattern
    take_lease: AccessPattern
    renew_lease: AccessPattern
    checkpoint: AccessPattern
    end_shard: AccessPattern
    release_lease: AccessPattern
    #: The partition of a stream's leases, and the key of one, by its shard.
    leases_partition: Callable[[str], str]
    lease_key: Callable[[str, str], Key]
    #: The transaction of a mark and its effect, and the key of a mark by the effect's name.
    apply_effects: AccessPattern
    effect_key: Callable[[str], Key]
    #: Patterns of the dead letters of a table.
    put_dead_letter: AccessPattern
    list_dead_letters: AccessPattern
    delete_dead_letter: AccessPattern
    #: The partition of a table's dead letters.
    dead_letters_partition: Callable[[str], str]
    #: The key of a dead letter by its table, moment (ISO 8601), padded sequence number and id, and the parts of a key.
    dead_letter_key: Callable[[str, str, str, str], Key]
    dead_letter_parts: Callable[[Key], tuple[str, str, str, str]]
