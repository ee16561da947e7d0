"""Callers of the gateway, and the keys under which their limits are counted."""

from msgspec import Struct

from datastore.model.identity import Identity
from server.admission.client_address import network_of


class Caller(Struct, eq=False):
    """The client of an operation: the identity in its token, or its address if it sends no token.

    `payer` is the cached result of `payer()`.
    """

    identity: Identity | None
    address: str = ""
    payer: str | None = None


def payer(caller: Caller) -> str:
    """Return the key of a caller's limits: the user of the token, or without a token the client's network."""
    if caller.payer is None:
        identity = caller.identity
        caller.payer = f"user:{identity.user_id}" if identity else f"address:{network_of(caller.address)}"
    return caller.payer
