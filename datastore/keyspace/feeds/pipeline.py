"""The table `feed-pipeline`: the state of the consumers of streams.

| item | key |
|---|---|
| lease of a shard, with its checkpoint | `LEASES#<stream>` / `<shard>` |
| mark of an exactly-once effect | `EFFECT#<name>` / `DONE` |
| mark of a counted change of an item | `EFFECT#<item>` / `CHANGE#<sequence>` |
| progress of a fan-out | `FANOUT#<job>` / `PROGRESS` |
| dead letter | `DEAD#<table>` / `<ts>#<sequence>#<id>` |
"""

from datastore.change_streams.consumer_table import ConsumerTable
from datastore.items.keys import KeyParts, item_key
from datastore.keyspace.feeds.leaderboards import FEED_METRICS
from datastore.keyspace.feeds.table import FEED
from datastore.model.access_patterns import TRANSACT, AccessPattern, Expiry, Table, Who

FEED_PIPELINE = Table(
    name="feed-pipeline", partition="PK", sort="SK", ttl="expiresAt", expiry=Expiry.NEVER, item_bytes=200
)


@item_key(FEED_PIPELINE)
def lease(stream: str, shard_id: str) -> KeyParts:
    """`stream` is the ARN of the stream."""
    return ("LEASES", stream), (shard_id,)


@item_key(FEED_PIPELINE)
def effect(name: str) -> KeyParts:
    return ("EFFECT", name), ("DONE",)


@item_key(FEED_PIPELINE)
def change_effect(item: str, position: str) -> KeyParts:
    """`item` names a handler and an item. The text order of the positions is the order of the item's changes."""
    return ("EFFECT", item), ("CHANGE", position)


@item_key(FEED_PIPELINE)
def progress(job: str) -> KeyParts:
    return ("FANOUT", job), ("PROGRESS",)


@item_key(FEED_PIPELINE)
def dead_letter(table: str, moment: str, sequence: str, letter_id: str) -> KeyParts:
    """Stream times are whole seconds: the padded `sequence` orders within one."""
    return ("DEAD", table), (moment, sequence, letter_id)


# The lease is still held.
HELD = "#owner = :owner AND fence = :fence"

LEASES = lease.query("FEED-P1", "The leases of a stream's shards, with their owners and checkpoints", consistent=True)
TAKE_LEASE = lease.update(
    "FEED-P1",
    "Take a shard's lease that is unchanged since it was read: free, expired, or of an owner with too many",
    # The fence grows with each owner, so that writes of a former owner fail. If the fence is unchanged, a lease without
    # an owner had none when it was read, or was released since.
    condition="attribute_not_exists(fence)"
    " OR fence = :seen AND (attribute_not_exists(held_until) OR held_until = :held)",
    update="SET #owner = :owner, held_until = :until REMOVE expiresAt ADD fence :one",
)
RENEW_LEASE = lease.update(
    "FEED-P1", "Renew a lease, if it is still held", condition=HELD, update="SET held_until = :until"
)
CHECKPOINT = lease.update(
    "FEED-P1",
    "Save the checkpoint of a shard, if its lease is still held",
    condition=HELD,
    update="SET #checkpoint = :checkpoint, held_until = :until",
)
END_SHARD = lease.update(
    "FEED-P1",
    "Mark a shard as processed to its end",
    condition=HELD,
    update="SET ended = :yes, expiresAt = :gone REMOVE held_until, #owner",
)
RELEASE_LEASE = lease.update(
    "FEED-P1", "Release a lease, if it is still held", condition=HELD, update="REMOVE held_until, #owner"
)
APPLY = AccessPattern(
    "FEED-P2",
    "Apply effects exactly once: put each effect's mark in one transaction with its updates",
    FEED_PIPELINE,
    TRANSACT,
    transacts=("Put", ("Update", FEED), ("Update", FEED_METRICS)),
    condition="attribute_not_exists(PK)",
)
# A count with the caller's own change reads the latest mark, the count, and the latest mark again, consistently.
OWN_COUNT_UNITS = 3
# The mutations whose responses contain counts with the caller's own change.
_COUNTED = (
    *("likePost", "unlikePost", "createComment", "deleteComment", "follow", "unfollow", "createPost", "deletePost"),
)
LATEST_COUNTED = change_effect.query(
    "FEED-N7",
    "The latest changes of a post, like, comment or follow that the pipeline has counted, for the counts of a response",
    Who.USER,
    _COUNTED,
    descending=True,
    consistent=True,
)
MARK_COUNTED = change_effect.put(
    "FEED-N7",
    "Mark that an old like or follow is counted, before it is deleted",
    Who.USER,
    ("unlikePost", "unfollow"),
)
PUT_DEAD_LETTER = dead_letter.put(
    "FEED-P3", "Store a dead letter: a record that could not be processed, with its error"
)
DEAD_LETTERS = dead_letter.query(
    "FEED-P3", "The dead letters of a table, oldest first", filter=("expiresAt > :now",), consistent=True
)
DELETE_DEAD_LETTER = dead_letter.delete("FEED-P3", "Delete a dead letter that was redriven")
PROGRESS = progress.read("FEED-P4", "The progress of a fan-out", consistent=True)
SAVE_PROGRESS = progress.put("FEED-P4", "Save the progress of a fan-out")

CONSUMER_TABLE = ConsumerTable(
    list_leases=LEASES,
    take_lease=TAKE_LEASE,
    renew_lease=RENEW_LEASE,
    checkpoint=CHECKPOINT,
    end_shard=END_SHARD,
    release_lease=RELEASE_LEASE,
    lease=lease,
    apply_effects=APPLY,
    effect=effect,
    change_effect=change_effect,
    put_dead_letter=PUT_DEAD_LETTER,
    list_dead_letters=DEAD_LETTERS,
    delete_dead_letter=DELETE_DEAD_LETTER,
    dead_letter=dead_letter,
)
