"""The signed-in caller, with their profiles in the systems."""

import strawberry

from datastore.reporters import UserProfile
from resolvers.access import Identity
from resolvers.context import Info


async def me(info: Info) -> Identity | None:
    return info.context.identity


async def profile(parent: strawberry.Parent[Identity], info: Info) -> UserProfile | None:
    return await info.context.reporters.by_id(parent.user_id)
