"""Authorization: the rule that decides whether a caller may use an access pattern."""

from datastore.errors import Forbidden, Unauthenticated
from datastore.model.access_patterns import AccessPattern, Who
from datastore.model.identity import Identity, Role


def require(identity: Identity | None, pattern: AccessPattern, *, owner: str | None = None) -> Identity:
    """Return the caller if the caller may use the pattern.

    `owner` is the user to whom the data belongs, by default the caller. Callers with the role of the pattern's `who`
    may use the pattern. Admins and the system may also read the data of every user, unless the pattern is for the owner
    alone (`Who.OWNER`). Fields that are open to everyone need no check.

    Raises:
        Unauthenticated: there is no caller.
        Forbidden: the caller may not use the pattern.
    """
    if identity is None:
        raise Unauthenticated("Sign in to use this field: send an Authorization: Bearer token.")
    if not _may(identity, pattern, owner):
        raise Forbidden(_reason(pattern, owner))
    return identity


def _may(identity: Identity, pattern: AccessPattern, owner: str | None) -> bool:
    if identity.role.value in pattern.also:
        return True
    is_own = owner is None or owner == identity.user_id
    if pattern.who is Who.OWNER:
        return is_own
    if pattern.who is Who.USER:
        return is_own or (identity.role is not Role.USER and not pattern.writes)
    return pattern.who is not Who.INTERNAL and identity.role == pattern.who.value


def _reason(pattern: AccessPattern, owner: str | None) -> str:
    if pattern.who in (Who.USER, Who.OWNER) and owner is not None:
        return "This data belongs to another user: use your own user id."
    return f"This field requires the role {pattern.who.value}."
