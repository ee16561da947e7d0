"""The command `seed`."""

import typer

from datastore.database import StoreOptions
from runtime.cli.options import BUCKET, named_settings, takes_store, with_gateway
from runtime.container import Gateway


@takes_store
def seed(store: StoreOptions) -> None:
    """Load the demo data that the store does not have yet."""

    async def load(gateway: Gateway) -> None:
        loaded = await gateway.background.demo().load()
        counts = f"{loaded.earthquakes} earthquakes, {loaded.sightings} sightings, {loaded.posts} posts"
        typer.echo(f"{counts} and {loaded.photos} photos stored")

    with_gateway(load, store, **named_settings(*BUCKET))
