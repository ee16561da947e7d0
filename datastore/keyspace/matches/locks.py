"""The table `cricket-locks`: locks of matches and jobs, so that one process at a time works on each."""

from datastore.model.access_patterns import AccessPattern, Table, Who
from datastore.model.composite_keys import Key

LOCKS = Table(name="cricket-locks", partition="lockKey", item_bytes=200)


def lock(name: str) -> Key:
    return Key(name)


def match_lock(match_id: str) -> str:
    return f"match:{match_id}"


def job_lock(job: str) -> str:
    return f"job:{job}"


ACQUIRE = AccessPattern(
    id="LOCK-1",
    question="Acquire a lock that is free or expired",
    table=LOCKS,
    operations=("PutItem",),
    who=Who.INTERNAL,
    # The owner may acquire it again: the response to its first request may have been lost.
    condition="attribute_not_exists(lockKey) OR expiresAt < :now OR #owner = :owner",
)
RELEASE = AccessPattern(
    id="LOCK-2",
    question="Release a lock, if it is still held",
    table=LOCKS,
    operations=("DeleteItem",),
    who=Who.INTERNAL,
    condition="#owner = :owner",
)
EXTEND = AccessPattern(
    id="LOCK-3",
    question="Extend a lock, if it is still held",
    table=LOCKS,
    operations=("UpdateItem",),
    who=Who.INTERNAL,
    condition="#owner = :owner",
    update="SET expiresAt = :until",
)
ALL_LOCKS = AccessPattern(
    id="LOCK-4",
    question="All locks, for operators",
    table=LOCKS,
    operations=("Scan",),
    who=Who.SYSTEM,
    fields=("locks",),
)

PATTERNS = (ACQUIRE, RELEASE, EXTEND, ALL_LOCKS)
