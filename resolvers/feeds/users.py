"""Users of the feed: FEED-001, FEED-W6."""

from typing import Annotated

import strawberry

from datastore.errors import BadUserInput
from datastore.feeds.posts import Post
from datastore.feeds.users import User
from datastore.keyspace.feeds import users as keys
from datastore.model.identifiers import ascii_lower
from datastore.model.identity import Identity
from resolvers.shared import validation as validate
from resolvers.shared.arguments import EXPECTED_VERSION
from resolvers.shared.authorization import require
from resolvers.shared.context import Info
from resolvers.shared.user_text import visible

LONGEST_NAME = 100
LONGEST_BIO = 500
LONGEST_REFERENCE = 500
# A browser would execute these addresses.
REFUSED_REFERENCES = ("javascript:", "data:", "vbscript:")


def name(field: str, value: str) -> str:
    return validate.line(field, value, LONGEST_NAME)


def bio(field: str, value: str) -> str | None:
    """Return the text, or None if it consists of spaces."""
    return validate.prose(field, value, LONGEST_BIO) if value.strip() else None


def reference(field: str, value: str) -> str:
    """Return a reference: a web address, or another text that has a meaning for the client.

    Raises `BadUserInput` also for an address that a browser would execute. Browsers ignore invisible characters.
    """
    text = validate.line(field, value, LONGEST_REFERENCE)
    if ascii_lower(visible(text)).startswith(REFUSED_REFERENCES):
        raise BadUserInput(f"`{field}` must not begin with {', '.join(REFUSED_REFERENCES)}.", field=field)
    return text


CHECKS: dict[str, validate.Check] = {"name": name, "bio": bio, "avatar_ref": reference}
REMOVABLE = ("bio", "avatar_ref")

Id = Annotated[strawberry.ID, strawberry.argument(description="The user's `userId`, not the global `id`.")]


@strawberry.input(description="The caller's user in the feed.")
class CreateUserInput:
    name: str = strawberry.field(description="The name, 1 to 100 characters.")
    bio: str | None = strawberry.field(description="A description of the user, at most 500 characters.", default=None)
    avatar_ref: str | None = strawberry.field(
        description="A reference to a picture of the user: an address or any other text, 1 to 500 characters.",
        default=None,
    )


@strawberry.input(description="The fields of the caller's user to change. Omitted fields keep their values.")
class UpdateUserInput:
    name: strawberry.Maybe[str | None] = strawberry.field(description="The name, 1 to 100 characters.", default=None)
    bio: strawberry.Maybe[str | None] = strawberry.field(
        description="A description of the user, at most 500 characters. Null removes it.", default=None
    )
    avatar_ref: strawberry.Maybe[str | None] = strawberry.field(
        description="A reference to a picture of the user, 1 to 500 characters. Null removes it.", default=None
    )
    expected_version: int | None = strawberry.field(description=EXPECTED_VERSION, default=None)


NewUser = Annotated[CreateUserInput, strawberry.argument(description="The user.")]
Changes = Annotated[UpdateUserInput, strawberry.argument(description="The changes, at least one field.")]


async def user(info: Info, id: Id) -> User | None:
    return await info.context.users.by_id(validate.user_id("id", id))


async def me(parent: strawberry.Parent[Identity], info: Info) -> User | None:
    return await info.context.users.by_id(parent.user_id)


async def author(parent: strawberry.Parent[Post], info: Info) -> User | None:
    return await info.context.users.by_id(parent.author_id)


def post_count(parent: strawberry.Parent[User]) -> int:
    return parent.posts


def follower_count(parent: strawberry.Parent[User]) -> int:
    return parent.followers


def following_count(parent: strawberry.Parent[User]) -> int:
    return parent.following


async def create_user(info: Info, input: NewUser) -> User:
    caller = require(info.context.identity, keys.CREATE_USER)
    return await info.context.users.create(caller.user_id, **validate.fields(input, CHECKS))


async def update_user(info: Info, input: Changes) -> User:
    caller = require(info.context.identity, keys.UPDATE_USER)
    changes, expected = validate.changes(input, CHECKS, REMOVABLE), validate.version(input.expected_version)
    return await info.context.users.update(caller.user_id, changes, expected)
