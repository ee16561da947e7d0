"""The table `cricket-locks`: who works on what, so that no two do."""

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
    question="Take a lock that nobody holds, or whose holder let it expire",
    table=LOCKS,
    operations=("PutItem",),
    who=Who.INTERNAL,
    # One's own is taken again: the answer to the first try may have been lost.
    condition="attribute_not_exists(lockKey) OR expiresAt < :now OR #owner = :owner",
)
RELEASE = AccessPattern(
    id="LOCK-2",
    question="Give back a lock that is one's own",
    table=LOCKS,
    operations=("DeleteItem",),
    who=Who.INTERNAL,
    condition="#owner = :owner",
)
EXTEND = AccessPattern(
    id="LOCK-3",
    question="Hold a lock that is one's own for longer",
    table=LOCKS,
    operations=("UpdateItem",),
    who=Who.INTERNAL,
    condition="#owner = :owner",
    update="SET expiresAt = :until",
)
HELD = AccessPattern(
    id="LOCK-4",
    question="All locks there are, for operators",
    table=LOCKS,
    operations=("Scan",),
    who=Who.SYSTEM,
    fields=("locks",),
)

PATTERNS = (ACQUIRE, RELEASE, EXTEND, HELD)
