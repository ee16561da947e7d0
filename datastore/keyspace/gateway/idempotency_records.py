"""Idempotency records in the table `gateway`: `ANSWER#<user id>#<idempotency key>` / `ANSWER`.

A record is a claim while its mutation is executed. Afterwards it holds the response.
"""

from datastore.keyspace.gateway.table import GATEWAY
from datastore.model.access_patterns import AccessPattern, Who
from datastore.model.composite_keys import Key, join

KIND = "ANSWER"


def idempotency_record(user_id: str, idempotency_key: str) -> Key:
    return Key(join(KIND, user_id, idempotency_key), KIND)


CLAIM = AccessPattern(
    id="GW-I1",
    question="Claim an idempotency key that was not used before, or whose record has expired",
    table=GATEWAY,
    operations=("PutItem",),
    who=Who.INTERNAL,
    condition="attribute_not_exists(PK) OR expiresAt <= :now",
)
TAKE_OVER = AccessPattern(
    id="GW-I2",
    question="Take over an expired claim, with the next fencing token",
    table=GATEWAY,
    operations=("PutItem",),
    who=Who.INTERNAL,
    condition="fence = :fence AND #owner = :owner AND attribute_not_exists(body)",
)
STORE_RESPONSE = AccessPattern(
    id="GW-I3",
    question="Store the response, if the request still holds the claim",
    table=GATEWAY,
    operations=("UpdateItem",),
    who=Who.INTERNAL,
    condition="fence = :fence AND #owner = :owner",
    update="SET body = :body, coding = :coding, expiresAt = :expiry REMOVE held_until",
)
RECORD = AccessPattern(
    id="GW-I4",
    question="The idempotency record that another request with the same key waits for",
    table=GATEWAY,
    operations=("GetItem", "BatchGetItem"),
    who=Who.INTERNAL,
    key="PK = ANSWER#<userId>#<key>, SK = ANSWER",
    consistent=True,
)
RELEASE = AccessPattern(
    id="GW-I5",
    question="Release a claim whose mutation changed nothing",
    table=GATEWAY,
    operations=("DeleteItem",),
    who=Who.INTERNAL,
    condition="fence = :fence AND #owner = :owner AND attribute_not_exists(body)",
)

PATTERNS = (CLAIM, TAKE_OVER, STORE_RESPONSE, RECORD, RELEASE)
