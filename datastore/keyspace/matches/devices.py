"""The table `cricket-devices`: the devices to which push notifications are sent."""

from datastore.model.access_patterns import AccessPattern, Table, Who
from datastore.model.composite_keys import Key
from datastore.model.versioning import SET_NEXT_VERSION, increment_clause, version_guard

DEVICES = Table(
    name="cricket-devices",
    partition="userId",
    sort="deviceToken",
    ttl="ttl",
    item_bytes=300,
)


def device(user_id: str, device_token: str) -> Key:
    return Key(user_id, device_token)


DEVICE_OF_USER = AccessPattern(
    id="DEV-1",
    question="The device of a user",
    table=DEVICES,
    operations=("Query",),
    who=Who.USER,
    fields=("device", "Me.device"),
    key="userId = :partition",
    filter=("#ttl > :now",),
)
REGISTER_DEVICE = AccessPattern(
    id="DEV-2",
    question="Register the device of a user, and delete any other",
    table=DEVICES,
    operations=("UpdateItem", "Query", "DeleteItem"),
    who=Who.USER,
    fields=("registerDevice",),
    key="userId = :partition",
    update=(
        "SET platform = :platform, apnsToken = :apnsToken, osVersion = :osVersion, appVersion = :appVersion, "
        f"registeredAt = :registeredAt, #ttl = :ttl, {SET_NEXT_VERSION}"
    ),
    # Of two concurrent registrations, the later read must see the earlier write.
    consistent=True,
)
REPLACE_DEVICE = AccessPattern(
    id="DEV-2",
    question="Delete a device that a later registration replaces, unless it was registered again",
    table=DEVICES,
    operations=("DeleteItem",),
    who=Who.INTERNAL,
    condition="attribute_not_exists(registeredAt) OR registeredAt = :seen",
)
UPDATE_PUSH_TO_START = AccessPattern(
    id="DEV-3",
    question="Store the push token that starts a Live Activity on a registered device",
    table=DEVICES,
    operations=("GetItem", "UpdateItem"),
    who=Who.USER,
    fields=("updatePushToStartToken",),
    condition="attribute_exists(userId)",
    guard=version_guard(),
    update=f"SET pushToStartToken = :token {increment_clause()}",
    consistent=True,
)
REMOVE_PUSH_TO_START = AccessPattern(
    id="DEV-3",
    question="Remove a rejected push token, unless the device has a new one",
    table=DEVICES,
    operations=("UpdateItem",),
    who=Who.INTERNAL,
    condition="pushToStartToken = :rejected",
    update=f"REMOVE pushToStartToken {increment_clause()}",
)
DELETE_DEVICE = AccessPattern(
    id="DEV-4",
    question="Delete a device",
    table=DEVICES,
    operations=("DeleteItem",),
    who=Who.USER,
    fields=("deleteDevice",),
)

PATTERNS = (
    DEVICE_OF_USER,
    REGISTER_DEVICE,
    REPLACE_DEVICE,
    UPDATE_PUSH_TO_START,
    REMOVE_PUSH_TO_START,
    DELETE_DEVICE,
)
