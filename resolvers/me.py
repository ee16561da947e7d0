"""The caller and the caller's profile."""

import strawberry

from datastore.model.identity import Identity
from datastore.sightings.reporters import UserProfile
from resolvers.shared.context import Info


async def me(info: Info) -> Identity | None:
    return info.context.identity


async def user_profile(parent: strawberry.Parent[Identity], info: Info) -> UserProfile | None:
    return await info.context.reporters.by_id(parent.user_id)
