"""Users of the photo library: SPARKS-1, SPARKS-4 and the mutations of users (SPARKS-W1)."""

from typing import Annotated

import strawberry

from datastore.errors import BadUserInput, Forbidden
from datastore.keyspace.photos import users as keys
from datastore.model.identity import Identity, Role
from datastore.photos.photos import Photo
from datastore.photos.users import PhotoUser, photo_user_from
from datastore.session.pagination import SortOrder
from resolvers.photos.photo_access import (
    Consistent,
    NotConsistent,
    caller_email,
    check_index_read,
    given_email,
    is_admin,
    may_see_email,
    uploader,
)
from resolvers.shared import validation as validate
from resolvers.shared.arguments import EXPECTED_VERSION, After, Before, First, Last, Order
from resolvers.shared.authorization import require
from resolvers.shared.context import Info
from resolvers.shared.paging import Connection

LONGEST_NAME = 100
MAX_UPLOADS = 1_000_000

Email = Annotated[
    str | None, strawberry.argument(description="The user's email address. The case of ASCII letters is ignored.")
]
OwnEmail = Annotated[
    str | None,
    strawberry.argument(
        description="The user's email address: the caller's own, or any for admins. The case of ASCII letters is "
        "ignored."
    ),
]
PhotoUserId = Annotated[strawberry.ID | None, strawberry.argument(description="The user's `userId`.")]


def display_name(field: str, value: str) -> str:
    return validate.line(field, value, LONGEST_NAME)


def upload_limit(field: str, value: int) -> int:
    return validate.number(field, value, minimum=0, maximum=MAX_UPLOADS)


CHECKS: dict[str, validate.Check] = {"display_name": display_name, "upload_limit": upload_limit}


@strawberry.input(description="A user of the photo library to create.")
class CreatePhotoUserInput:
    display_name: str = strawberry.field(description="The name, 1 to 100 characters.")
    email: str | None = strawberry.field(
        description="The email address of the user; by default the caller's. Only admins may name another user.",
        default=None,
    )
    upload_limit: int | None = strawberry.field(
        description="The maximum number of photos of the user, 0 to 1,000,000; by default 100. Only admins may set it.",
        default=None,
    )


@strawberry.input(description="The fields of a user to change. Omitted fields keep their values.")
class UpdatePhotoUserInput:
    user_id: strawberry.ID | None = strawberry.field(
        description="The `userId` of the user; by default the caller's. Only admins may name another user.",
        default=None,
    )
    display_name: strawberry.Maybe[str | None] = strawberry.field(
        description="The name, 1 to 100 characters.", default=None
    )
    upload_limit: strawberry.Maybe[int | None] = strawberry.field(
        description="The maximum number of photos of the user, 0 to 1,000,000. Only admins may set it.", default=None
    )
    expected_version: int | None = strawberry.field(description=EXPECTED_VERSION, default=None)


NewPhotoUser = Annotated[CreatePhotoUserInput, strawberry.argument(description="The user.")]
Changes = Annotated[UpdatePhotoUserInput, strawberry.argument(description="The changes, at least one field.")]


async def photo_user(
    info: Info, email: OwnEmail = None, user_id: PhotoUserId = None, consistent: Consistent = False
) -> PhotoUser | None:
    context = info.context
    address = given_email(context, email=email, user_id=user_id)
    if email is not None:
        _require_owner(context.identity, address)
        pattern = keys.PHOTO_USER_BY_EMAIL_CONSISTENT if consistent else keys.PHOTO_USER_BY_EMAIL
    else:
        pattern = keys.PHOTO_USER_CONSISTENT if consistent else keys.PHOTO_USER
    return None if address is None else await context.photo_users.by_email(address, pattern)


def _require_owner(identity: Identity | None, address: str | None) -> None:
    """Raise `Unauthenticated`, or `Forbidden` unless the email is the caller's own or the caller is an admin.

    Nothing is read before the check, so the error does not reveal whether the email has an account.
    """
    caller = require(identity, keys.PHOTO_USER_BY_EMAIL)
    if not (is_admin(caller) or caller_email(caller) == address):
        raise Forbidden("`email` must be your own: read other users by `userId`.")


async def photo_users(
    info: Info,
    first: First = None,
    after: After = None,
    last: Last = None,
    before: Before = None,
    order: Order = SortOrder.ASCENDING,
    consistent: NotConsistent = False,
) -> Connection[PhotoUser]:
    require(info.context.identity, keys.PHOTO_USERS)
    check_index_read(consistent)
    connection = Connection(
        info.context.services.cursors, keys.PHOTO_USERS, "Query.photoUsers", {"order": order.value}, photo_user_from
    )
    page = await info.context.photo_users.all(connection.span(first, after, last, before), order)
    return connection.of(page)


async def me(parent: strawberry.Parent[Identity], info: Info) -> PhotoUser | None:
    email = caller_email(parent)
    return None if email is None else await info.context.photo_users.by_email(email)


async def user(parent: strawberry.Parent[Photo], info: Info) -> PhotoUser | None:
    return await info.context.photo_users.by_email(parent.email)


def user_id(parent: strawberry.Parent[PhotoUser | Photo], info: Info) -> strawberry.ID:
    return strawberry.ID(info.context.services.user_ids.encrypt(parent.email))


def email(parent: strawberry.Parent[PhotoUser | Photo], info: Info) -> str | None:
    return parent.email if may_see_email(info.context.identity, parent.email) else None


async def create_photo_user(info: Info, input: NewPhotoUser) -> PhotoUser:
    context = info.context
    caller = require(context.identity, keys.CREATE_PHOTO_USER)
    values = validate.fields(input, CHECKS)
    own_email = uploader(caller, keys.CREATE_PHOTO_USER) if input.email is None else None
    address = own_email or validate.email("email", input.email or "")
    _require_admin(caller, {"email": address != caller_email(caller), "uploadLimit": input.upload_limit is not None})
    if not address.isascii():
        raise BadUserInput("`email` must be ASCII for a new user.", field="email")
    return await context.photo_users.create(
        address, **{name: value for name, value in values.items() if value is not None}
    )


async def update_photo_user(info: Info, input: Changes) -> PhotoUser:
    context = info.context
    caller = require(context.identity, keys.UPDATE_PHOTO_USER)
    if input.user_id is None:
        address: str | None = uploader(caller, keys.UPDATE_PHOTO_USER)
    else:
        address = context.services.user_ids.decrypt(input.user_id)
    _require_admin(caller, {"userId": address != caller_email(caller), "uploadLimit": input.upload_limit is not None})
    changes = validate.changes(input, CHECKS, removable=())
    if address is None:
        raise BadUserInput("`userId` is not the id of a photo user.", field="userId")
    attributes = validate.attributes(changes)
    return await context.photo_users.update(address, attributes, validate.version(input.expected_version))


def _require_admin(caller: Identity, used: dict[str, bool]) -> None:
    """Raise `Forbidden` if a caller that is no admin used one of these fields."""
    forbidden = [name for name, is_used in used.items() if is_used]
    if forbidden and caller.role is not Role.ADMIN:
        raise Forbidden(f"`{forbidden[0]}` is for admins only.")
