"""The demo data: `gateway.py seed`."""

import typer

from runtime.cli.options import (
    DATA_DIR,
    DataDir,
    Memory,
    Prefix,
    Region,
    StoreOption,
    bucket,
    store_options,
    with_gateway,
)
from runtime.container import Gateway


def seed(
    store: StoreOption = "embedded",
    data_dir: DataDir = DATA_DIR,
    memory: Memory = False,
    prefix: Prefix = "",
    region: Region = None,
) -> None:
    """Load the demo data that is not there yet."""

    async def load(gateway: Gateway) -> None:
        loaded = await gateway.background.demo().load()
        earlier = f"{loaded.earthquakes} earthquakes, {loaded.sightings} sightings, {loaded.posts} posts"
        typer.echo(f"{earlier} and {loaded.photos} photos stored")

    with_gateway(load, store_options(store, data_dir, memory, prefix, region), **bucket())
