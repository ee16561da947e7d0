"""What the API says about devices: the shape only."""

from datetime import datetime

import strawberry

from datastore.keyspace.matches import devices as patterns
from datastore.matches import devices as records
from datastore.model.access_patterns import Extent
from resolvers.matches import devices as resolve
from schema.fields import VERSION, ask

TOKENS = "Only its owner and the system may see it; null for others."


@strawberry.type(description="Where a user's push notifications go. A user has one device.")
class Device:
    user_id: strawberry.ID = strawberry.field(description="Whose device.")
    device_token = strawberry.field(
        resolver=resolve.device_token,
        graphql_type=strawberry.ID | None,
        description=f"The APNs device token, in lower case. {TOKENS}",
    )
    platform: records.Platform = strawberry.field(description="What it runs.")
    apns_token = strawberry.field(
        resolver=resolve.apns_token,
        graphql_type=str | None,
        description=f"The token that notifications go to. {TOKENS}",
    )
    push_to_start_token = strawberry.field(
        resolver=resolve.push_to_start_token,
        graphql_type=str | None,
        description=f"The token that starts a Live Activity, if there is one. {TOKENS}",
    )
    os_version: str | None = strawberry.field(description="The version of its system when it was registered.")
    app_version: str | None = strawberry.field(description="The version of the app when it was registered.")
    registered_at: datetime | None = strawberry.field(description="When it was registered last.")
    expires_at: datetime = strawberry.field(description="When it is forgotten, unless it is registered again.")
    version: int = strawberry.field(description=VERSION)


@strawberry.type
class DeviceQueries:
    device = ask(
        patterns.DEVICE_OF_USER,
        resolver=resolve.device,
        graphql_type=Device | None,
        description="The device of a user, or null. Users see their own.",
    )


@strawberry.type
class DeviceMutations:
    register_device = ask(
        patterns.REGISTER_DEVICE,
        resolver=resolve.register_device,
        graphql_type=Device,
        extent=Extent(written=2),
        description="Register the caller's device for 90 days, in place of any other. "
        "Registered again, it keeps its push-to-start token.",
    )
    update_push_to_start_token = ask(
        patterns.UPDATE_PUSH_TO_START,
        resolver=resolve.update_push_to_start_token,
        graphql_type=Device,
        description="Keep the token that starts a Live Activity on the caller's device.",
    )
    delete_device = ask(
        patterns.DELETE_DEVICE,
        resolver=resolve.delete_device,
        graphql_type=Device | None,
        description="Forget the caller's device; answers what was, or null if it was not registered.",
    )
