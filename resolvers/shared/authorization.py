"""Authorization: the rule that decides whether a caller may use an access pattern."""

from datastore.errors import Forbidden, Unauthenticated
from datastore.model.access_patterns import AccessPattern, Who
from datastore.model.identity import Identity, Role


def require(identity: Identity | None, pattern: AccessPattern, *, owner: str | None = None) -> Identity:
    """Return the caller if it may use the pattern. Raises `Unauthenticated` or `Forbidden`.

    `owner` is the user whose data a user's pattern is about; without it the data is the caller's own. Admin and
    system tokens may do what the pattern's `who` names, and read what a user may. Fields for anybody need no check.
    """
    if identity is None:
        raise Unauthenticated("Sign in to use this field: send an Authorization: Bearer token.")
    if not _may(identity, pattern, owner):
        raise Forbidden(_refusal(pattern, owner))
    return identity


def _may(identity: Identity, pattern: AccessPattern, owner: str | None) -> bool:
    if identity.role.value in pattern.also:
        return True
    if pattern.who is Who.USER:
        own = owner is None or owner == identity.user_id
        return own or (identity.role is not Role.USER and not pattern.writes)
    return pattern.who is not Who.INTERNAL and identity.role == pattern.who.value


def _refusal(pattern: AccessPattern, owner: str | None) -> str:
    if pattern.who is Who.USER and owner is not None:
        return "This is another user's data."
    return f"This needs the role {pattern.who.value}."
