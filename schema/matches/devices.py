"""GraphQL types and fields of devices."""

from datetime import datetime

import strawberry

from datastore.keyspace.matches import devices as patterns
from datastore.matches import devices as records
from datastore.model.access_patterns import Extent
from resolvers.matches import devices as resolve
from schema.fields import VERSION, pattern_field

TOKENS = "Visible to its owner and the system; null for all other callers."


@strawberry.type(description="The device that receives a user's push notifications. A user has at most one.")
class Device:
    user_id: strawberry.ID = strawberry.field(description="The id of the user.")
    device_token = strawberry.field(
        resolver=resolve.device_token,
        graphql_type=strawberry.ID | None,
        description=f"The APNs device token, in lower case. {TOKENS}",
    )
    platform: records.Platform = strawberry.field(description="The operating system.")
    apns_token = strawberry.field(
        resolver=resolve.apns_token,
        graphql_type=str | None,
        description=f"The token that receives notifications. {TOKENS}",
    )
    push_to_start_token = strawberry.field(
        resolver=resolve.push_to_start_token,
        graphql_type=str | None,
        description=f"The token that starts a Live Activity; null without one. {TOKENS}",
    )
    os_version: str | None = strawberry.field(
        description="The version of the operating system at the latest registration."
    )
    app_version: str | None = strawberry.field(description="The version of the app at the latest registration.")
    registered_at: datetime | None = strawberry.field(description="The time of the latest registration.")
    expires_at: datetime = strawberry.field(
        description="The time at which the registration expires, 90 days after the latest one."
    )
    version: int = strawberry.field(description=VERSION)


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
    update_push_to_start_token = pattern_field(
        patterns.UPDATE_PUSH_TO_START,
        resolver=resolve.update_push_to_start_token,
        graphql_type=Device,
        description="Store the token that starts a Live Activity on the caller's device, and return the device.",
    )
    delete_device = pattern_field(
        patterns.DELETE_DEVICE,
        resolver=resolve.delete_device,
        graphql_type=Device | None,
        description="Delete the caller's device. Return it as it was, or null if it was not registered.",
    )
