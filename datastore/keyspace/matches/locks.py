"""The table `cricket-locks`: locks of matches and jobs, so that one process at a time works on each."""

from datastore.items.keys import KeyParts, item_key
from datastore.model.access_patterns import Table, Who

LOCKS = Table(name="cricket-locks", partition="lockKey")


@item_key(LOCKS)
def lock(name: str) -> KeyParts:
    return (name,), ()


def match_lock(match_id: str) -> str:
    return f"match:{match_id}"


def job_lock(job: str) -> str:
    return f"job:{job}"


ACQUIRE = lock.put(
    "LOCK-1",
    "Acquire a lock that is free or expired",
    # The owner may acquire it again: the response to its first request may have been lost.
    condition="attribute_not_exists(lockKey) OR expiresAt < :now OR #owner = :owner",
)
RELEASE = lock.delete("LOCK-2", "Release a lock, if it is still held", condition="#owner = :owner")
EXTEND = lock.update(
    "LOCK-3", "Extend a lock, if it is still held", condition="#owner = :owner", update="SET expiresAt = :until"
)
ALL_LOCKS = lock.scan("LOCK-4", "All locks, for operators", Who.SYSTEM, ("locks",))
