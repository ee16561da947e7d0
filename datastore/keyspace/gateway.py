"""The table `gateway`: idempotency records, persisted documents, and the settings of running gateways.

| item | key |
|---|---|
| idempotency record | `ANSWER#<user id>#<idempotency key>` / `ANSWER` |
| persisted document | `DOCUMENTS` / `<id>` |
| settings of a gateway | `SETTINGS` / `GATEWAY#<host and port>` |

An idempotency record is a claim while its mutation is executed. Afterwards it holds the response.
The settings of a gateway are fingerprints: the item reveals no secret and no setting.
"""

from datastore.items.keys import KeyParts, item_key
from datastore.model.access_patterns import DELETE, GET, PUT, QUERY, AccessPattern, Expiry, Table
from datastore.model.composite_keys import Key, join, split

GATEWAY = Table(name="gateway", partition="PK", sort="SK", ttl="expiresAt", expiry=Expiry.NEVER)
DOCUMENTS = "DOCUMENTS"


@item_key(GATEWAY)
def idempotency_record(user_id: str, key: str) -> KeyParts:
    return ("ANSWER", user_id, key), ("ANSWER",)


@item_key(GATEWAY)
def running_gateway(address: str) -> KeyParts:
    return ("SETTINGS",), ("GATEWAY", address)


def document(document_id: str) -> Key:
    return Key(DOCUMENTS, join(document_id))


def document_id(key: Key) -> str:
    return split(key.sort)[0]


# The claim is still held.
HELD = "fence = :fence AND #owner = :owner"

CLAIM = idempotency_record.put(
    "GW-I1",
    "Claim an idempotency key that was not used before, or whose record has expired",
    condition="attribute_not_exists(PK)",
    expiry=Expiry.ALWAYS,
)
TAKE_OVER = idempotency_record.put(
    "GW-I2",
    "Take over an expired claim, with the next fencing token",
    condition=f"{HELD} AND attribute_not_exists(body)",
)
STORE_RESPONSE = idempotency_record.update(
    "GW-I3",
    "Store the response, if the request still holds the claim",
    condition=HELD,
    update="SET body = :body, coding = :coding, expiresAt = :expiry REMOVE held_until",
)
RECORD = idempotency_record.read(
    "GW-I4",
    "The idempotency record that another request with the same key waits for",
    expiry=Expiry.ALWAYS,
    consistent=True,
)
RELEASE = idempotency_record.delete(
    "GW-I5", "Release a claim whose mutation changed nothing", condition=f"{HELD} AND attribute_not_exists(body)"
)
DOCUMENT = AccessPattern(
    "GW-D1", "The text of a persisted document by its id", GATEWAY, GET, key="PK = DOCUMENTS, SK = <id>"
)
PUT_DOCUMENT = AccessPattern(
    "GW-D2",
    "Store a persisted document, unless its id is stored with another text",
    GATEWAY,
    PUT,
    condition="attribute_not_exists(PK) OR #text = :text",
)
ALL_DOCUMENTS = AccessPattern("GW-D3", "All persisted documents, ordered by id", GATEWAY, QUERY, key="PK = :partition")
DELETE_DOCUMENT = AccessPattern("GW-D4", "Delete a persisted document", GATEWAY, DELETE)
PUT_SETTINGS = running_gateway.put(
    "GW-S1", "Store the fingerprints of a running gateway's settings, every minute", expiry=Expiry.ALWAYS
)
ALL_SETTINGS = running_gateway.query(
    "GW-S2", "The fingerprints of the settings of all running gateways, ordered by address", expiry=Expiry.ALWAYS
)
DELETE_SETTINGS = running_gateway.delete(
    "GW-S3",
    "Delete the fingerprints of a gateway that ends, unless another process with its address has replaced them",
    condition="#run = :run",
)
