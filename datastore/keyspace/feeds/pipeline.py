"""The table `feed-pipeline`: the state of the consumers of streams.

| item | key |
|---|---|
| lease of a shard, with its checkpoint | `LEASES#<stream>` / `<shard>` |
| mark of an exactly-once effect | `EFFECT#<name>` / `DONE` |
| progress of a fan-out | `FANOUT#<job>` / `PROGRESS` |
| dead letter | `DEAD#<table>` / `<ts>#<sequence>#<id>` |
"""

from datastore.change_streams.consumer_table import ConsumerTable
from datastore.keyspace.feeds.leaderboards import FEED_METRICS
from datastore.keyspace.feeds.table import FEED
from datastore.model.access_patterns import AccessPattern, Table, Who
from datastore.model.composite_keys import Key, join, split

FEED_PIPELINE = Table(name="feed-pipeline", partition="PK", sort="SK", ttl="expiresAt")


def leases(stream: str) -> str:
    """Return the partition of all leases of a stream, given by its ARN."""
    return join("LEASES", stream)


def lease(stream: str, shard_id: str) -> Key:
    return Key(leases(stream), shard_id)


def effect(name: str) -> Key:
    return Key(join("EFFECT", name), "DONE")


def progress(job: str) -> Key:
    return Key(join("FANOUT", job), "PROGRESS")


def dead_letters(table: str) -> str:
    return join("DEAD", table)


def dead_letter(table: str, moment: str, sequence: str, letter_id: str) -> Key:
    """Return the key of a dead letter. Stream times are whole seconds: the padded `sequence` orders within one."""
    return Key(dead_letters(table), join(moment, sequence, letter_id))


def dead_letter_parts(key: Key) -> tuple[str, str, str, str]:
    """Return the table, time (ISO 8601), sequence and id in a dead letter's key."""
    moment, sequence, letter_id = split(key.sort)
    return split(key.partition)[1], moment, sequence, letter_id


LEASES = AccessPattern(
    id="FEED-P1",
    question="The leases of a stream's shards, with their owners and checkpoints",
    table=FEED_PIPELINE,
    operations=("Query",),
    who=Who.INTERNAL,
    key="PK = :partition",
    consistent=True,
)
TAKE_LEASE = AccessPattern(
    id="FEED-P1",
    question="Take a shard's lease that is unchanged since it was read: free, expired, or of an owner with too many",
    table=FEED_PIPELINE,
    operations=("UpdateItem",),
    who=Who.INTERNAL,
    # The fence grows with each owner, so that writes of a former owner fail. If the fence is unchanged, a lease without
    # an owner had none when it was read, or was released since.
    condition="attribute_not_exists(fence)"
    " OR fence = :seen AND (attribute_not_exists(held_until) OR held_until = :held)",
    update="SET #owner = :owner, held_until = :until REMOVE expiresAt ADD fence :one",
)
RENEW_LEASE = AccessPattern(
    id="FEED-P1",
    question="Renew a lease, if it is still held",
    table=FEED_PIPELINE,
    operations=("UpdateItem",),
    who=Who.INTERNAL,
    condition="#owner = :owner AND fence = :fence",
    update="SET held_until = :until",
)
CHECKPOINT = AccessPattern(
    id="FEED-P1",
    question="Save the checkpoint of a shard, if its lease is still held",
    table=FEED_PIPELINE,
    operations=("UpdateItem",),
    who=Who.INTERNAL,
    condition="#owner = :owner AND fence = :fence",
    update="SET #checkpoint = :checkpoint, held_until = :until",
)
END_SHARD = AccessPattern(
    id="FEED-P1",
    question="Mark a shard as processed to its end",
    table=FEED_PIPELINE,
    operations=("UpdateItem",),
    who=Who.INTERNAL,
    condition="#owner = :owner AND fence = :fence",
    update="SET ended = :yes, expiresAt = :gone REMOVE held_until, #owner",
)
RELEASE_LEASE = AccessPattern(
    id="FEED-P1",
    question="Release a lease, if it is still held",
    table=FEED_PIPELINE,
    operations=("UpdateItem",),
    who=Who.INTERNAL,
    condition="#owner = :owner AND fence = :fence",
    update="REMOVE held_until, #owner",
)
APPLY = AccessPattern(
    id="FEED-P2",
    question="Apply effects exactly once: put each effect's mark in one transaction with its updates",
    table=FEED_PIPELINE,
    operations=("TransactWriteItems",),
    transacts=("Put", ("Update", FEED), ("Update", FEED_METRICS)),
    who=Who.INTERNAL,
    condition="attribute_not_exists(PK)",
)
PUT_DEAD_LETTER = AccessPattern(
    id="FEED-P3",
    question="Store a dead letter: a record that could not be processed, with its error",
    table=FEED_PIPELINE,
    operations=("PutItem",),
    who=Who.INTERNAL,
)
DEAD_LETTERS = AccessPattern(
    id="FEED-P3",
    question="The dead letters of a table, oldest first",
    table=FEED_PIPELINE,
    operations=("Query",),
    who=Who.INTERNAL,
    key="PK = :partition",
    filter=("expiresAt > :now",),
    consistent=True,
)
DELETE_DEAD_LETTER = AccessPattern(
    id="FEED-P3",
    question="Delete a dead letter that was redriven",
    table=FEED_PIPELINE,
    operations=("DeleteItem",),
    who=Who.INTERNAL,
)
PROGRESS = AccessPattern(
    id="FEED-P4",
    question="The progress of a fan-out",
    table=FEED_PIPELINE,
    operations=("GetItem", "BatchGetItem"),
    who=Who.INTERNAL,
    key="PK = FANOUT#<job>, SK = PROGRESS",
    consistent=True,
)
SAVE_PROGRESS = AccessPattern(
    id="FEED-P4",
    question="Save the progress of a fan-out",
    table=FEED_PIPELINE,
    operations=("PutItem",),
    who=Who.INTERNAL,
)

CONSUMER_TABLE = ConsumerTable(
    list_leases=LEASES,
    take_lease=TAKE_LEASE,
    renew_lease=RENEW_LEASE,
    checkpoint=CHECKPOINT,
    end_shard=END_SHARD,
    release_lease=RELEASE_LEASE,
    leases_partition=leases,
    lease_key=lease,
    apply_effects=APPLY,
    effect_key=effect,
    put_dead_letter=PUT_DEAD_LETTER,
    list_dead_letters=DEAD_LETTERS,
    delete_dead_letter=DELETE_DEAD_LETTER,
    dead_letters_partition=dead_letters,
    dead_letter_key=dead_letter,
    dead_letter_parts=dead_letter_parts,
)

PATTERNS = (
    LEASES,
    TAKE_LEASE,
    RENEW_LEASE,
    CHECKPOINT,
    END_SHARD,
    RELEASE_LEASE,
    APPLY,
    PUT_DEAD_LETTER,
    DEAD_LETTERS,
    DELETE_DEAD_LETTER,
    PROGRESS,
    SAVE_PROGRESS,
)
