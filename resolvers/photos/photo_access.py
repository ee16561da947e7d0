"""Access to the photo library, which identifies callers by the verified email of their token."""

import re
from collections.abc import Awaitable, Callable
from typing import Any, Unpack
from urllib.parse import unquote

from datastore.dynamodb.record_decoder import RecordDecoder
from datastore.errors import BadUserInput, Forbidden
from datastore.keyspace.photos.table import of_type
from datastore.model import identifiers
from datastore.model.access_patterns import AccessPattern
from datastore.model.identity import Identity, Role
from datastore.session.pagination import SortOrder, read_page
from resolvers.shared import validation as validate
from resolvers.shared.authorization import require
from resolvers.shared.context import Context, Info
from resolvers.shared.global_ids import local_id
from resolvers.shared.paging import Connection, Paging, connection_of, paged_in
from resolvers.shared.selected_fields import has_child_reads

# An @ that does not begin the pixel density of a file name: this matches ada@2x.com, but not thumbnail@2x.jpg.
_AT = re.compile(r"@(?!\d(\.\d)?x\.(jpe?g|png|webp|gif|avif|heic|svg)([?#]|\Z))", re.ASCII | re.IGNORECASE)


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


def given_email(context: Context, *, email: str | None, user_id: str | None, id_field: str = "userId") -> str | None:
    """Return the email of the user that either `email` or the argument `id_field` names; None for an invalid id."""
    if (email is None) == (user_id is None):
        raise BadUserInput(f"Give either `email` or `{id_field}`.", field=id_field if email is None else "email")
    if user_id is not None:
        return context.services.user_ids.decrypt(local_id(id_field, user_id, "PhotoUser"))
    return validate.email("email", email or "")


def list_of_type(
    pattern: AccessPattern, convert: RecordDecoder[Any], kind: str, order: SortOrder
) -> Callable[..., Awaitable[Connection[Any]]]:
    """Return the resolver of the list of all items of a kind, by default in this order."""

    @paged_in(order)
    async def resolve(info: Info, **paging: Unpack[Paging]) -> Connection[Any]:
        connection = connection_of(info, pattern, convert)
        span, reads, values = connection.span(**paging), has_child_reads(info), of_type.values_of(kind)
        return connection.of(await read_page(info.context.store, pattern, [values], span, has_child_reads=reads))

    return resolve
