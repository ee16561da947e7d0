"""Users of the feed: FEED-001, FEED-W6."""

from collections.abc import Awaitable, Sequence
from typing import Annotated

import strawberry

from datastore.errors import BadUserInput
from datastore.feeds.users import User
from datastore.keyspace.feeds import users as keys
from datastore.model.access_patterns import consistently
from datastore.model.identifiers import ascii_lower
from datastore.model.identity import Identity
from resolvers.shared import validation as validate
from resolvers.shared.arguments import EXPECTED_VERSION, Consistent, argument, optional, required
from resolvers.shared.authorization import require
from resolvers.shared.context import Info
from resolvers.shared.user_text import visible

LONGEST_REFERENCE = 500
# A browser would execute these addresses.
REFUSED_REFERENCES = ("javascript:", "data:", "vbscript:")


def reference(field: str, value: str) -> str:
    """Return a reference: a web address, or another text that has a meaning for the client.

    Raises `BadUserInput` also for an address that a browser would execute. Browsers ignore invisible characters.
    """
    text = validate.line(field, value, LONGEST_REFERENCE)
    if ascii_lower(visible(text)).startswith(REFUSED_REFERENCES):
        raise BadUserInput(f"`{field}` must not begin with {', '.join(REFUSED_REFERENCES)}.", field=field)
    return text


OWN_CHECKS: dict[str, validate.Check] = {"avatar_ref": reference}

Id = Annotated[strawberry.ID, argument("The user's `userId` or `id`.")]


@strawberry.input(description="The caller's user in the feed.")
class CreateUserInput:
    name: str = required("The name, 1 to 100 characters.")
    bio: str | None = optional("A description of the user, at most 500 characters; by default none.")
    avatar_ref: str | None = optional(
        "A reference to a picture of the user: an address or any other text, 1 to 500 characters; by default none."
    )


@strawberry.input(description="The fields of the caller's user to change. Omitted fields keep their values.")
class UpdateUserInput:
    name: strawberry.Maybe[str | None] = optional("The name, 1 to 100 characters.")
    bio: strawberry.Maybe[str | None] = optional("A description of the user, at most 500 characters. Null removes it.")
    avatar_ref: strawberry.Maybe[str | None] = optional(
        "A reference to a picture of the user, 1 to 500 characters. Null removes it."
    )
    expected_version: int | None = optional(EXPECTED_VERSION)


NewUser = Annotated[CreateUserInput, argument("The user.")]
Changes = Annotated[UpdateUserInput, argument("The changes, at least one field.")]


async def user(info: Info, id: Id, consistent: Consistent = False) -> User | None:
    return await info.context.users.by_id(validate.user_id("id", id), consistently(keys.USER, consistent))


async def me(parent: strawberry.Parent[Identity], info: Info) -> User | None:
    return await info.context.users.by_id(parent.user_id)


async def users_by_id(ids: Sequence[str], info: Info) -> Sequence[User | Exception | None]:
    return info.context.own_changes.prepare_users(await info.context.users.by_ids(ids))


def post_count(parent: strawberry.Parent[User], info: Info) -> int | Awaitable[int]:
    return parent.posts if parent.posts is not None else _count(parent, info, "posts")


def follower_count(parent: strawberry.Parent[User], info: Info) -> int | Awaitable[int]:
    return parent.followers if parent.followers is not None else _count(parent, info, "followers")


def following_count(parent: strawberry.Parent[User], info: Info) -> int | Awaitable[int]:
    return parent.following if parent.following is not None else _count(parent, info, "following")


async def _count(user: User, info: Info, name: str) -> int:
    """Return a count of the user with the caller's own change."""
    return await info.context.own_changes.count_of_user(user.user_id, name) or 0


async def create_user(info: Info, input: NewUser) -> User:
    caller = require(info.context.identity, keys.CREATE_USER)
    return await info.context.users.create(caller.user_id, **validate.fields(input, User, own=OWN_CHECKS))


async def update_user(info: Info, input: Changes) -> User:
    caller = require(info.context.identity, keys.UPDATE_USER)
    changes, expected = (validate.changes(input, User, own=OWN_CHECKS), validate.version(input.expected_version))
    return await info.context.users.update(caller.user_id, changes, expected)
