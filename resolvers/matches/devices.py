"""Devices for push notifications: DEV-1 … DEV-4."""

import re
from typing import Annotated

import strawberry

from datastore.errors import BadUserInput
from datastore.keyspace.matches import devices as keys
from datastore.matches.devices import Device, Platform
from datastore.model.identifiers import ascii_lower
from datastore.model.identity import Identity, Role
from resolvers.shared import validation as validate
from resolvers.shared.arguments import ExpectedVersion, UserId
from resolvers.shared.authorization import require
from resolvers.shared.context import Context, Info

LONGEST_VERSION = 40
_PUSH_TOKEN = re.compile(r"[0-9a-f]{32,200}", re.ASCII | re.IGNORECASE)

DeviceToken = Annotated[strawberry.ID, strawberry.argument(description="The device's `deviceToken`.")]
PushToStartToken = Annotated[
    str,
    strawberry.argument(
        description="The token that starts a Live Activity on the device, as supplied by iOS: 32 to 200 "
        "hexadecimal digits."
    ),
]


# The enum is registered before the input: Strawberry would otherwise register it under the name of its class.
strawberry.enum(
    Platform,
    name="DevicePlatform",
    description="The operating system of a device. All of them receive notifications from Apple's push service.",
)


@strawberry.input(description="A device to register.")
class RegisterDeviceInput:
    device_token: strawberry.ID = strawberry.field(
        description="The APNs device token, as supplied by iOS: 32 to 200 hexadecimal digits."
    )
    platform: Platform = strawberry.field(description="The operating system.")
    apns_token: str | None = strawberry.field(
        description="The token that receives notifications; by default `deviceToken`.", default=None
    )
    os_version: str = strawberry.field(description="The version of the operating system, 1 to 40 characters.")
    app_version: str = strawberry.field(description="The version of the app, 1 to 40 characters.")


NewDevice = Annotated[RegisterDeviceInput, strawberry.argument(description="The caller's device.")]


async def device(info: Info, user_id: UserId) -> Device | None:
    require(info.context.identity, keys.DEVICE_OF_USER, owner=user_id)
    return await info.context.devices.of_user(validate.user_id("userId", user_id))


async def my_device(parent: strawberry.Parent[Identity], info: Info) -> Device | None:
    return await info.context.devices.of_user(parent.user_id)


async def register_device(info: Info, input: NewDevice) -> Device:
    caller = require(info.context.identity, keys.REGISTER_DEVICE)
    device_token = push_token("deviceToken", input.device_token)
    return await info.context.devices.register(
        caller.user_id,
        device_token,
        platform=input.platform,
        apns_token=device_token if input.apns_token is None else push_token("apnsToken", input.apns_token),
        os_version=validate.line("osVersion", input.os_version, LONGEST_VERSION),
        app_version=validate.line("appVersion", input.app_version, LONGEST_VERSION),
    )


async def update_push_to_start_token(
    info: Info,
    device_token: DeviceToken,
    push_to_start_token: PushToStartToken,
    expected_version: ExpectedVersion = None,
) -> Device:
    caller = require(info.context.identity, keys.UPDATE_PUSH_TO_START)
    return await info.context.devices.update_push_to_start_token(
        caller.user_id,
        push_token("deviceToken", device_token),
        push_token("pushToStartToken", push_to_start_token),
        validate.version(expected_version),
    )


async def delete_device(info: Info, device_token: DeviceToken) -> Device | None:
    caller = require(info.context.identity, keys.DELETE_DEVICE)
    return await info.context.devices.delete(caller.user_id, push_token("deviceToken", device_token))


def device_token(parent: strawberry.Parent[Device], info: Info) -> str | None:
    return parent.device_token if may_see_tokens(info.context, parent.user_id) else None


def apns_token(parent: strawberry.Parent[Device], info: Info) -> str | None:
    return parent.apns_token if may_see_tokens(info.context, parent.user_id) else None


def push_to_start_token(parent: strawberry.Parent[Device], info: Info) -> str | None:
    return parent.push_to_start_token if may_see_tokens(info.context, parent.user_id) else None


def may_see_tokens(context: Context, owner: str) -> bool:
    """Return whether the caller may see a device's push tokens: the owner, and the services that send notifications."""
    caller = context.identity
    return caller is not None and (caller.user_id == owner or caller.role is Role.SYSTEM)


def push_token(field: str, value: str) -> str:
    """Return an APNs token in lower case. Raises `BadUserInput`, whose message does not contain the input."""
    if not _PUSH_TOKEN.fullmatch(value):
        raise BadUserInput(f"`{field}` must have between 32 and 200 hexadecimal digits.", field=field)
    return ascii_lower(value)
