"""GraphQL types and fields of devices."""

from datetime import datetime
from typing import Any

import strawberry

from datastore.keyspace.matches import devices as patterns
from datastore.matches import devices as records
from datastore.model.access_patterns import Extent
from resolvers.matches import devices as resolve
from schema.fields import VERSION, described, pattern_field
from schema.nodes import Node, node_type

TOKENS = "Visible to its owner and the system; null for all other callers."


def token_field(name: str, description: str, kind: Any = str) -> Any:
    """Return the field of a push token."""
    resolver = resolve.visible_token(name)
    return strawberry.field(resolver=resolver, graphql_type=kind | None, description=f"{description} {TOKENS}")


@node_type(
    records.Device,
    patterns.DEVICE_OF_USER,
    parts=("user_id",),
    owner="user_id",
    read=lambda context, *key: context.devices.of_user(*key),
    description="The device that receives a user's push notifications. A user has at most one, so its `id` is derived "
    "from the user's, and remains when another device replaces it.",
)
class Device(Node):
    user_id: strawberry.ID = described("The id of the user.")
    device_token = token_field("device_token", "The APNs device token, in lower case.", strawberry.ID)
    platform: records.Platform = described("The operating system.")
    apns_token = token_field("apns_token", "The token that receives notifications.")
    push_to_start_token = token_field("push_to_start_token", "The token that starts a Live Activity; null without one.")
    os_version: str | None = described(
        "The version of the operating system at the latest registration; null if it is unknown."
    )
    app_version: str | None = described("The version of the app at the latest registration; null if it is unknown.")
    registered_at: datetime | None = described("The time of the latest registration; null if it is unknown.")
    expires_at: datetime = described("The time at which the registration expires, 90 days after the latest one.")
    version: int = described(VERSION)


@strawberry.type
class DeviceQueries:
    device = pattern_field(
        patterns.DEVICE_OF_USER,
        resolver=resolve.device,
        graphql_type=Device | None,
        description="Return a user's device; null if none is registered. Users read their own; admins and the "
        "system read any user's.",
    )


@strawberry.type
class DeviceMutations:
    register_device = pattern_field(
        patterns.REGISTER_DEVICE,
        resolver=resolve.register_device,
        graphql_type=Device,
        extent=Extent(written=2),
        description="Register the caller's device for 90 days, and return it. It replaces any other device of the "
        "caller. A device that is registered again keeps its push-to-start token.",
    )
    update_device = pattern_field(
        patterns.UPDATE_PUSH_TO_START,
        resolver=resolve.update_device,
        graphql_type=Device,
        description="Change the token that starts a Live Activity on the caller's device, and return the device. "
        "NOT_FOUND unless the device is registered.",
    )
    delete_device = pattern_field(
        patterns.DELETE_DEVICE,
        resolver=resolve.delete_device,
        graphql_type=Device | None,
        description="Delete the caller's device. Return it as it was, or null if it was not registered.",
    )
