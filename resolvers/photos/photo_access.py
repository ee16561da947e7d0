"""Whom the photo library knows a caller as: by the verified email of their token."""

import re
from typing import Annotated
from urllib.parse import unquote

import strawberry

from datastore.errors import BadUserInput, Forbidden
from datastore.model import identifiers
from datastore.model.access_patterns import AccessPattern
from datastore.model.identity import Identity, Role
from resolvers.shared import validation as validate
from resolvers.shared.authorization import require
from resolvers.shared.context import Context

# A density is the end of a picture's name, as no domain ends: thumbnail@2x.jpg, and not ada@2x.com.
_AT = re.compile(r"@(?!\d(\.\d)?x\.(jpe?g|png|webp|gif|avif|heic|svg)([?#]|\Z))", re.ASCII | re.IGNORECASE)

Consistent = Annotated[
    bool, strawberry.argument(description="Whether to read with strong consistency, for twice the read units.")
]
NotConsistent = Annotated[
    bool,
    strawberry.argument(description="Must be false: this list is read from an index, which is eventually consistent."),
]


def caller_email(identity: Identity | None) -> str | None:
    """Return the caller's email in its normal form; None without one, and for one that has none."""
    return None if identity is None or identity.email is None else identifiers.email(identity.email)


def uploader(identity: Identity | None, pattern: AccessPattern) -> str:
    """The email of a caller who may use the pattern. Raises `Unauthenticated` or `Forbidden`."""
    email = caller_email(require(identity, pattern))
    if email is None:
        raise Forbidden("The photo library knows its users by email: this needs a token with a verified one.")
    return email


def moderator(identity: Identity | None, pattern: AccessPattern) -> tuple[str | None, bool]:
    """The email of a caller who may use the pattern, and whether on anybody's photos: whom `also` names needs no email.

    Raises `Unauthenticated` or `Forbidden`.
    """
    if identity is not None and identity.role.value in pattern.also:
        return caller_email(identity), True
    return uploader(identity, pattern), False


def may_see_email(identity: Identity | None, email: str) -> bool:
    """Emails are shown to their owner, and to admins."""
    return is_admin(identity) or caller_email(identity) == identifiers.ascii_lower(email)


def is_admin(identity: Identity | None) -> bool:
    return identity is not None and identity.role is Role.ADMIN


def holds_email(address: str) -> bool:
    """Whether an email may be in a URL or a file's key: an @, but for those of pictures of some density (`@2x.jpg`)."""
    return _AT.search(unquote(unquote(address))) is not None


def email_given(context: Context, *, email: str | None, user_id: str | None) -> str | None:
    """Which user a field is about, named by one of its two arguments; None when there is no such id."""
    if (email is None) == (user_id is None):
        raise BadUserInput("Give either `email` or `userId`.", field="userId" if email is None else "email")
    if user_id is not None:
        return context.services.user_ids.email_of(user_id)
    return validate.email("email", email or "")


def from_index(consistent: bool) -> None:
    """Raise `BadUserInput` when a list that is read from an index is to be consistent."""
    if consistent:
        raise BadUserInput(
            "`consistent` must be false here: DynamoDB reads indexes eventually consistently only.",
            field="consistent",
        )
