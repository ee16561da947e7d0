"""Access to the photo library, which identifies callers by the verified email of their token."""

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

# An @ that does not begin the pixel density of a file name: this matches ada@2x.com, but not thumbnail@2x.jpg.
_AT = re.compile(r"@(?!\d(\.\d)?x\.(jpe?g|png|webp|gif|avif|heic|svg)([?#]|\Z))", re.ASCII | re.IGNORECASE)

Consistent = Annotated[
    bool, strawberry.argument(description="Whether to read with strong consistency, for twice the read units.")
]
NotConsistent = Annotated[
    bool,
    strawberry.argument(description="Must be false: this list is read from an index, which is eventually consistent."),
]


def caller_email(identity: Identity | None) -> str | None:
    """Return the normal form of the caller's email, or None if it is missing or invalid."""
    return None if identity is None or identity.email is None else identifiers.normal_email(identity.email)


def uploader(identity: Identity | None, pattern: AccessPattern) -> str:
    """Return the email of a caller that may use the pattern. Raises `Unauthenticated` or `Forbidden`."""
    email = caller_email(require(identity, pattern))
    if email is None:
        raise Forbidden(
            "This field requires a token with a verified email: the photo library identifies its users by email."
        )
    return email


def moderator(identity: Identity | None, pattern: AccessPattern) -> tuple[str | None, bool]:
    """Return the email of a caller that may use the pattern, and whether the caller may use it on every photo.

    Callers with a role in the pattern's `also` may use it on every photo, and need no email.

    Raises `Unauthenticated` or `Forbidden`.
    """
    if identity is not None and identity.role.value in pattern.also:
        return caller_email(identity), True
    return uploader(identity, pattern), False


def may_see_email(identity: Identity | None, email: str) -> bool:
    """Return whether the caller is the owner of the email or an admin."""
    return is_admin(identity) or caller_email(identity) == identifiers.ascii_lower(email)


def is_admin(identity: Identity | None) -> bool:
    return identity is not None and identity.role is Role.ADMIN


def holds_email(address: str) -> bool:
    """Return whether a URL or a file's key may contain an email: an @ that is not part of a density (`@2x.jpg`)."""
    return _AT.search(unquote(unquote(address))) is not None


def given_email(context: Context, *, email: str | None, user_id: str | None) -> str | None:
    """Return the email of the user that one of the two arguments names, or None if the id is invalid."""
    if (email is None) == (user_id is None):
        raise BadUserInput("Give either `email` or `userId`.", field="userId" if email is None else "email")
    if user_id is not None:
        return context.services.user_ids.decrypt(user_id)
    return validate.email("email", email or "")


def check_index_read(consistent: bool) -> None:
    """Raise `BadUserInput` if a consistent read of an index is requested."""
    if consistent:
        raise BadUserInput(
            "`consistent` must be false here: DynamoDB supports only eventually consistent reads of indexes.",
            field="consistent",
        )
