"""The command `token`, for gateways that sign their own tokens."""

import os
from datetime import timedelta
from typing import Annotated

import typer

from datastore.database import StoreOptions
from datastore.model.identity import Role
from runtime.cli.options import DATA_DIR, settings_of, takes_store
from runtime.console import mistake
from server.security.jwt import Tokens, TokenSettings
from server.wiring import DEMO_USERS


@takes_store
def print_token(
    *,
    role: Annotated[
        Role, typer.Option(help="The role of the caller, which decides what operations are allowed.")
    ] = Role.USER,
    user: Annotated[str, typer.Option(help="The user id: the token's `sub`.")] = DEMO_USERS[0][1],
    email: Annotated[str | None, typer.Option(help="The caller's verified email address.")] = None,
    hours: Annotated[float, typer.Option(min=0.01, max=24 * 365, help="The lifetime of the token in hours.")] = 12,
    store: StoreOptions,
) -> None:
    """Print a token that a gateway with the same store options accepts."""
    if os.environ.get("GATEWAY_JWKS_URL"):
        raise mistake("GATEWAY_JWKS_URL is set: the gateway accepts tokens of that issuer only.", 2)
    settings = settings_of(store, store.data_dir or DATA_DIR)
    signer = Tokens(
        TokenSettings(
            secret=settings.secret,
            issuer=settings.issuer,
            audience=settings.audience,
            role_claim=settings.role_claim,
        )
    )
    typer.echo(signer.issue(user, role, email=email, lifetime=timedelta(hours=hours).total_seconds()))
