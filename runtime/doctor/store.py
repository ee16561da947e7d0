"""Checks of the store: credentials, clock, tables, streams, and the settings of the other gateways."""

import time
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime
from uuid import uuid4

from datastore.database import Database, StoreOptions, open_database
from datastore.errors import Unavailable
from datastore.gateway.running_gateways import RunningGateways
from datastore.session.metering import Deadline
from datastore.session.store import Store
from runtime.container import utc_now
from runtime.doctor.findings import Finding, Level
from server.agreement.fingerprints import differences, fingerprints_of
from server.agreement.settings_agreement import STALE
from server.settings import Settings

MOST_SKEW_SECONDS = 30.0
SECONDS = 10.0


async def check_store(
    options: StoreOptions, settings: Settings, now: Callable[[], datetime] = utc_now
) -> AsyncIterator[Finding]:
    """Check the store at the time `now`. An embedded one is not created.

    Raises:
        StoreMisconfigured, EngineMissing, EngineFailed: The store cannot be opened.
        DomainError, RequestRefused: It does not answer, or refuses a request.
    """
    folder = options.data_dir
    if options.embedded and (options.memory or folder is None or not folder.is_dir()):
        yield Finding(Level.OK, "Store", "It is embedded and has no data yet: `serve` creates it.")
        return
    async with open_database(options) as database:
        began = time.perf_counter()
        place = "The embedded engine" if options.embedded else database.endpoint.tables()
        try:
            tables = await database.describe_tables()
        except Unavailable:
            yield Finding(
                Level.ERROR, "Store", f"{place} does not answer: start it, or correct --store (GATEWAY_STORE)."
            )
            return
        milliseconds = 1000 * (time.perf_counter() - began) / len(tables)
        yield Finding(Level.OK, "Store", f"{place} answers, on average in {milliseconds:.0f} ms.")
        for finding in _clock(database):
            yield finding
        missing = [str(table["TableName"]) for table in tables if table["TableStatus"] == "MISSING"]
        async for finding in _tables(database, len(tables), missing):
            yield finding
        async for finding in _streams(database, [table for table in tables if table.get("LatestStreamArn")]):
            yield finding
        if not missing:
            async for finding in _other_gateways(database, settings, now):
                yield finding


def _clock(database: Database) -> Iterator[Finding]:
    skew = database.client.store_clock.skew
    if abs(skew) > MOST_SKEW_SECONDS:
        text = f"This machine's clock is {abs(skew):.0f} s {'behind' if skew > 0 else 'ahead of'} the store's"
        yield Finding(Level.WARNING, "Clock", f"{text}: set it by NTP. Tokens expire by this machine's clock.")
    else:
        yield Finding(Level.OK, "Clock", f"It agrees with the store's within {MOST_SKEW_SECONDS:.0f} s.")


async def _tables(database: Database, declared: int, missing: list[str]) -> AsyncIterator[Finding]:
    if missing:
        text = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing: run `tables create`."
        yield Finding(Level.ERROR, "Tables", text)
    found = await database.compare_tables()
    for difference in found:
        advice = "see docs/infrastructure.md" if difference.change is None else "run `tables create --update`"
        yield Finding(Level.ERROR, "Tables", f"{difference}: {advice}.")
    if not missing and not found:
        yield Finding(Level.OK, "Tables", f"All {declared} are as declared.")


async def _streams(database: Database, tables: list[dict[str, str]]) -> AsyncIterator[Finding]:
    """Check that the streams can be read: on AWS they have another address and need other permissions."""
    for table in tables:
        await database.client.call("DescribeStream", {"StreamArn": table["LatestStreamArn"], "Limit": 1})
    if tables:
        yield Finding(Level.OK, "Streams", f"All {len(tables)} can be read.")


async def _other_gateways(
    database: Database, settings: Settings, now: Callable[[], datetime]
) -> AsyncIterator[Finding]:
    """Compare the settings with those of the running gateways."""
    store = Store(
        database.client, prefix=database.prefix, deadline=Deadline(SECONDS), token=lambda: uuid4().hex, now=now
    )
    own = fingerprints_of(settings)
    running = [each for each in await RunningGateways(store).all() if now() - each.seen_at < STALE]
    for gateway in running:
        if differing := differences(own, gateway.fingerprints):
            names = ", ".join(sorted(differing))
            text = f"{gateway.address} runs with other values of {names}: set the same values for all gateways."
            yield Finding(Level.ERROR, "Gateways", text)
    if not running:
        yield Finding(Level.OK, "Gateways", "None is running on these tables.")
    elif all(not differences(own, gateway.fingerprints) for gateway in running):
        yield Finding(Level.OK, "Gateways", f"The settings agree with those of {len(running)} running gateways.")
