"""Users of the photo library: SPARKS-1, SPARKS-4 and the mutations of users (SPARKS-W1)."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, TypeVar

import strawberry

from datastore.errors import BadUserInput, Forbidden
from datastore.feeds.users import User
from datastore.keyspace.photos import users as keys
from datastore.model.access_patterns import consistently
from datastore.model.identity import Identity, Role
from datastore.photos.photos import Photo
from datastore.photos.users import UPLOAD_LIMIT, PhotoUser
from datastore.session.pagination import SortOrder
from datastore.sightings.reporters import UserProfile
from resolvers.photos.photo_access import (
    caller_email,
    given_email,
    is_admin,
    list_of_type,
    may_see_email,
    uploader,
)
from resolvers.shared import validation as validate
from resolvers.shared.arguments import EXPECTED_VERSION, Consistent, argument, optional, required
from resolvers.shared.authorization import require
from resolvers.shared.context import Context, Info
from resolvers.shared.global_ids import global_id, local_id

Record = TypeVar("Record")

Email = Annotated[
    str | None,
    argument("The user's email address; null if `userId` names the user. The case of ASCII letters is ignored."),
]
OwnEmail = Annotated[
    str | None,
    argument(
        "The user's email address: the caller's own, or any for admins; null if `id` names the user. The case of "
        "ASCII letters is ignored."
    ),
]
PhotoUserId = Annotated[
    strawberry.ID | None,
    argument("The `userId` or `id` of the `PhotoUser`, not the `sub`; null if `email` names the user."),
]


@strawberry.input(description="A user of the photo library to create.")
class CreatePhotoUserInput:
    display_name: str = required("The name, 1 to 100 characters.")
    email: str | None = optional(
        "The email address of the user, at most 254 characters; by default the caller's. Only admins may name another "
        "user."
    )
    upload_limit: int = strawberry.field(
        description="The maximum number of photos of the user, 0 to 1,000,000. Only admins may set another one.",
        default=UPLOAD_LIMIT,
    )


@strawberry.input(description="The fields of a user to change. Omitted fields keep their values.")
class UpdatePhotoUserInput:
    display_name: strawberry.Maybe[str | None] = optional("The name, 1 to 100 characters.")
    upload_limit: strawberry.Maybe[int | None] = optional(
        "The maximum number of photos of the user, 0 to 1,000,000. Only admins may set it."
    )
    expected_version: int | None = optional(EXPECTED_VERSION)


NewPhotoUser = Annotated[CreatePhotoUserInput, argument("The user.")]
ChangedUserId = Annotated[
    strawberry.ID | None,
    argument("The `userId` or `id` of the user; by default the caller's. Only admins may name another user."),
]
Changes = Annotated[UpdatePhotoUserInput, argument("The changes, at least one field.")]


async def photo_user(
    info: Info, email: OwnEmail = None, id: PhotoUserId = None, consistent: Consistent = False
) -> PhotoUser | None:
    context = info.context
    address = given_email(context, email=email, user_id=id, id_field="id")
    if email is not None:
        _require_owner(context.identity, address)
    pattern = consistently(keys.PHOTO_USER if email is None else keys.PHOTO_USER_BY_EMAIL, consistent)
    return None if address is None else await context.photo_users.by_email(address, pattern)


def _require_owner(identity: Identity | None, address: str | None) -> None:
    """Raise `Unauthenticated`, or `Forbidden` unless the email is the caller's own or the caller is an admin.

    Nothing is read before the check, so the error does not reveal whether the email has an account.
    """
    caller = require(identity, keys.PHOTO_USER_BY_EMAIL)
    if not (is_admin(caller) or caller_email(caller) == address):
        raise Forbidden("`email` must be your own: read other users by `id`.")


photo_users = list_of_type(keys.PHOTO_USERS, PhotoUser.decoder, keys.TYPE, SortOrder.ASCENDING)


async def me(parent: strawberry.Parent[Identity], info: Info) -> PhotoUser | None:
    email = caller_email(parent)
    return None if email is None else await info.context.photo_users.by_email(email)


async def users_by_email(emails: Sequence[str], info: Info) -> Sequence[PhotoUser | Exception | None]:
    return await info.context.photo_users.by_emails(emails)


# Only a token says which email belongs to which user id, so these links lead from and to the caller alone.


async def photo_users_of_caller(user_ids: Sequence[str], info: Info) -> Sequence[PhotoUser | Exception | None]:
    """Return the caller's photo user for the caller's user id, None for all other ids."""
    caller = info.context.identity
    email = caller_email(caller)
    if caller is None or email is None or caller.user_id not in user_ids:
        return [None] * len(user_ids)
    (own,) = await info.context.photo_users.by_emails([email])
    return [own if user_id == caller.user_id else None for user_id in user_ids]


async def users_of_caller(emails: Sequence[str], info: Info) -> Sequence[User | Exception | None]:
    """Return the caller's user in the feed for the caller's email, None for all other emails."""
    return await _of_caller(emails, info, info.context.users.by_ids)


async def profiles_of_caller(emails: Sequence[str], info: Info) -> Sequence[UserProfile | Exception | None]:
    """Return the caller's profile as a reporter for the caller's email, None for all other emails."""
    return await _of_caller(emails, info, info.context.reporters.by_ids)


async def _of_caller(
    emails: Sequence[str], info: Info, read: Callable[[Sequence[str]], Awaitable[Sequence[Record | Exception | None]]]
) -> Sequence[Record | Exception | None]:
    caller = info.context.identity
    email = caller_email(caller)
    if caller is None or email is None or email not in emails:
        return [None] * len(emails)
    (own,) = await read([caller.user_id])
    return [own if each == email else None for each in emails]


def user_id(parent: strawberry.Parent[PhotoUser | Photo], info: Info) -> strawberry.ID:
    return strawberry.ID(info.context.services.user_ids.encrypt(parent.email))


def global_user_id(parent: strawberry.Parent[PhotoUser], info: Info) -> str:
    return global_id("PhotoUser", info.context.services.user_ids.encrypt(parent.email))


async def photo_user_by_id(context: Context, user_id: str) -> PhotoUser | None:
    email = context.services.user_ids.decrypt(user_id)
    return None if email is None else await context.photo_users.by_email(email)


def email(parent: strawberry.Parent[PhotoUser | Photo], info: Info) -> str | None:
    return parent.email if may_see_email(info.context.identity, parent.email) else None


async def create_photo_user(info: Info, input: NewPhotoUser) -> PhotoUser:
    context = info.context
    caller = require(context.identity, keys.CREATE_PHOTO_USER)
    values = validate.fields(input, PhotoUser)
    own_email = uploader(caller, keys.CREATE_PHOTO_USER) if input.email is None else None
    address = own_email or validate.email("email", input.email or "")
    _require_admin(
        caller, {"email": address != caller_email(caller), "uploadLimit": input.upload_limit != UPLOAD_LIMIT}
    )
    if not address.isascii():
        raise BadUserInput("`email` must be ASCII for a new user.", field="email")
    return await context.photo_users.create(
        address, display_name=values["display_name"], upload_limit=values["upload_limit"]
    )


async def update_photo_user(info: Info, input: Changes, id: ChangedUserId = None) -> PhotoUser:
    context = info.context
    caller = require(context.identity, keys.UPDATE_PHOTO_USER)
    if id is None:
        address: str | None = uploader(caller, keys.UPDATE_PHOTO_USER)
    else:
        address = context.services.user_ids.decrypt(local_id("id", id, "PhotoUser"))
    _require_admin(caller, {"id": address != caller_email(caller), "uploadLimit": input.upload_limit is not None})
    changes = validate.changes(input, PhotoUser)
    if address is None:
        raise BadUserInput("`id` is not the id of a photo user.", field="id")
    return await context.photo_users.update(address, changes, validate.version(input.expected_version))


def _require_admin(caller: Identity, used: dict[str, bool]) -> None:
    """Raise `Forbidden` if a caller that is no admin used one of these fields."""
    forbidden = [name for name, is_used in used.items() if is_used]
    if forbidden and caller.role is not Role.ADMIN:
        raise Forbidden(f"`{forbidden[0]}` is for admins only.")
