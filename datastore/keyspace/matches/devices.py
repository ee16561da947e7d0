"""The table `cricket-devices`: the devices to which push notifications are sent."""

from datastore.items.keys import KeyParts, item_key
from datastore.model.access_patterns import DELETE, QUERY, UPDATE, AccessPattern, Table, Who
from datastore.model.versioning import SET_NEXT_VERSION, increment_clause, version_guard

DEVICES = Table(name="cricket-devices", partition="userId", sort="deviceToken", ttl="ttl")


@item_key(DEVICES)
def device(user_id: str, device_token: str) -> KeyParts:
    return (user_id,), (device_token,)


DEVICE_OF_USER = device.query("DEV-1", "The device of a user", Who.USER, ("device", "Me.device", "node", "nodes"))
REGISTER_DEVICE = AccessPattern(
    "DEV-2",
    "Register the device of a user, and delete any other",
    DEVICES,
    UPDATE + QUERY + DELETE,
    Who.USER,
    ("registerDevice",),
    key="userId = :partition",
    update=(
        "SET platform = :platform, apnsToken = :apnsToken, osVersion = :osVersion, appVersion = :appVersion, "
        f"registeredAt = :registeredAt, #ttl = :ttl, {SET_NEXT_VERSION}"
    ),
    sees_expired=True,
    # Of two concurrent registrations, the later read must see the earlier write.
    consistent=True,
)
REPLACE_DEVICE = device.delete(
    "DEV-2",
    "Delete a device that a later registration replaces, unless it was registered again",
    condition="attribute_not_exists(registeredAt) OR registeredAt = :seen",
    sees_expired=True,
)
UPDATE_PUSH_TO_START = AccessPattern(
    "DEV-3",
    "Store the push token that starts a Live Activity on a registered device",
    DEVICES,
    ("GetItem", "UpdateItem"),
    Who.USER,
    ("updateDevice",),
    condition="attribute_exists(userId)",
    guard=version_guard(),
    update=f"SET pushToStartToken = :token {increment_clause()}",
    consistent=True,
)
REMOVE_PUSH_TO_START = device.update(
    "DEV-3",
    "Remove a rejected push token, unless the device has a new one",
    condition="pushToStartToken = :rejected",
    update=f"REMOVE pushToStartToken {increment_clause()}",
)
DELETE_DEVICE = device.delete("DEV-4", "Delete a device", Who.USER, ("deleteDevice",))
