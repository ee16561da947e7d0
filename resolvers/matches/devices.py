"""Devices for push notifications: DEV-1 … DEV-4."""

import re
from collections.abc import Callable
from typing import Annotated, Any

import strawberry

from datastore.errors import BadUserInput
from datastore.keyspace.matches import devices as keys
from datastore.matches.devices import Device, Platform
from datastore.model.identifiers import ascii_lower
from datastore.model.identity import Identity, Role
from resolvers.shared import validation as validate
from resolvers.shared.arguments import EXPECTED_VERSION, Consistent, UserId, argument, optional, required
from resolvers.shared.authorization import require
from resolvers.shared.context import Info

LONGEST_VERSION = 40
_PUSH_TOKEN = re.compile(r"[0-9a-f]{32,200}", re.ASCII | re.IGNORECASE)

DeviceToken = Annotated[
    strawberry.ID, argument("The device's APNs token, as supplied by iOS: 32 to 200 hexadecimal digits.")
]


# The enum is registered before the input: Strawberry would otherwise register it under the name of its class.
strawberry.enum(
    Platform,
    name="DevicePlatform",
    description="The operating system of a device. All of them receive notifications from Apple's push service.",
)


@strawberry.input(description="A device to register.")
class RegisterDeviceInput:
    platform: Platform = required("The operating system.")
    apns_token: str | None = optional(
        "The token that receives notifications: 32 to 200 hexadecimal digits; by default `deviceToken`."
    )
    os_version: str = required("The version of the operating system, 1 to 40 characters.")
    app_version: str = required("The version of the app, 1 to 40 characters.")


@strawberry.input(description="The changes of a device.")
class UpdateDeviceInput:
    push_to_start_token: str = required(
        "The token that starts a Live Activity, as supplied by iOS: 32 to 200 hexadecimal digits."
    )
    expected_version: int | None = optional(EXPECTED_VERSION)


Changes = Annotated[UpdateDeviceInput, argument("The changes.")]
NewDevice = Annotated[RegisterDeviceInput, argument("The caller's device.")]


async def device(info: Info, user_id: UserId, consistent: Consistent = False) -> Device | None:
    owner = validate.user_id("userId", user_id)
    require(info.context.identity, keys.DEVICE_OF_USER, owner=owner)
    return await info.context.devices.of_user(owner, consistent=consistent)


async def my_device(parent: strawberry.Parent[Identity], info: Info) -> Device | None:
    return await info.context.devices.of_user(parent.user_id)


async def register_device(info: Info, device_token: DeviceToken, input: NewDevice) -> Device:
    caller = require(info.context.identity, keys.REGISTER_DEVICE)
    token = push_token("deviceToken", device_token)
    return await info.context.devices.register(
        caller.user_id,
        token,
        platform=input.platform,
        apns_token=token if input.apns_token is None else push_token("apnsToken", input.apns_token),
        os_version=validate.line("osVersion", input.os_version, LONGEST_VERSION),
        app_version=validate.line("appVersion", input.app_version, LONGEST_VERSION),
    )


async def update_device(info: Info, device_token: DeviceToken, input: Changes) -> Device:
    caller = require(info.context.identity, keys.UPDATE_PUSH_TO_START)
    return await info.context.devices.update_push_to_start_token(
        caller.user_id,
        push_token("deviceToken", device_token),
        push_token("pushToStartToken", input.push_to_start_token),
        validate.version(input.expected_version),
    )


async def delete_device(info: Info, device_token: DeviceToken) -> Device | None:
    caller = require(info.context.identity, keys.DELETE_DEVICE)
    return await info.context.devices.delete(caller.user_id, push_token("deviceToken", device_token))


def visible_token(name: str) -> Callable[..., str | None]:
    """Return the resolver of a push token, which its owner and the services that send notifications see."""

    def token(parent: strawberry.Parent[Any], info: Info) -> str | None:
        caller = info.context.identity
        may_see = caller is not None and (caller.user_id == parent.user_id or caller.role is Role.SYSTEM)
        return getattr(parent, name) if may_see else None

    return token


def push_token(field: str, value: str) -> str:
    """Return an APNs token in lower case. Raises `BadUserInput`, whose message does not contain the input."""
    if not _PUSH_TOKEN.fullmatch(value):
        raise BadUserInput(f"`{field}` must have between 32 and 200 hexadecimal digits.", field=field)
    return ascii_lower(value)
