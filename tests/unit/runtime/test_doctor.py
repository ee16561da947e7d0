"""The command `doctor`: what it finds on the machine, in the settings, at the services and in the store."""

import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from datastore.database import Database, StoreOptions
from datastore.dynamodb.store_clock import StoreClock
from datastore.gateway.running_gateways import RunningGateway, RunningGateways
from datastore.keyspace import TABLES
from runtime.doctor import machine
from runtime.doctor.findings import Finding, Level
from runtime.doctor.machine import check_disk, check_open_files, check_programs
from runtime.doctor.services import check_key_set, check_redis
from runtime.doctor.store import check_store
from runtime.doctor.variables import check_secret_files
from server.admission.settings import Capacity
from server.agreement.fingerprints import fingerprints_of
from server.agreement.settings_agreement import STALE
from server.settings import Settings
from tests.support.command_line import run_here
from tests.support.issuers import RSA_ONE, published, publishing
from tests.support.ports import free_port
from tests.support.redis_server import RedisServer, redis
from tests.support.served import Clock, Served

__all__ = ["redis"]  # a fixture

SECRET = "a secret that signs cursors and tokens"


async def listed(findings: AsyncIterator[Finding]) -> list[Finding]:
    return [finding async for finding in findings]


def subjects(findings: list[Finding], level: Level) -> list[str]:
    return [finding.subject for finding in findings if finding.level is level]


def only(findings: list[Finding], subject: str) -> Finding:
    (finding,) = (finding for finding in findings if finding.subject == subject)
    return finding


# --- The command ------------------------------------------------------------------------------------------------------


def test_a_new_machine_has_no_errors_and_nothing_is_created(tmp_path: Path) -> None:
    folder = tmp_path / "data"

    done = run_here("doctor", "--data-dir", folder, GATEWAY_PORT=str(free_port()))

    assert done.returncode == 0
    assert "error" not in done.stdout
    assert "ok       Store: It is embedded and has no data yet: `serve` creates it.\n" in done.stdout
    assert not folder.exists()


def test_each_invalid_setting_is_reported_once_and_the_store_is_not_checked(tmp_path: Path) -> None:
    wrong = {"GATEWAY_MAX_COST": "many", "GATEWAY_SHARED_READS": "maybe", "GATEWAY_PORT": "abc"}

    done = run_here("doctor", "--data-dir", tmp_path, **wrong)

    assert done.returncode == 1
    errors = [line for line in done.stdout.splitlines() if line.startswith("error")]
    assert errors[:2] == [
        "error    Settings: GATEWAY_MAX_COST must be a number of read units, 0 or more, not 'many'.",
        "error    Settings: GATEWAY_SHARED_READS must be on or off, not 'maybe'.",
    ]
    assert len(errors) == 3
    assert "GATEWAY_PORT" in errors[2]
    assert "warning  Store: It was not checked: correct the settings first.\n" in done.stdout


def test_a_combination_of_settings_is_checked_too(tmp_path: Path) -> None:
    done = run_here("doctor", "--data-dir", tmp_path, GATEWAY_JWKS_URL="https://issuer.example.com/keys")

    assert done.returncode == 1
    assert done.stdout.count("Set GATEWAY_JWT_ISSUER and GATEWAY_JWT_AUDIENCE beside GATEWAY_JWKS_URL") == 1


def test_a_misspelt_variable_is_reported_with_the_nearest_name(tmp_path: Path) -> None:
    done = run_here("doctor", "--data-dir", tmp_path / "data", GATEWAY_SERCET=SECRET, GATEWAY_PORT=str(free_port()))

    assert "GATEWAY_SERCET is no setting of the gateway, and has no effect. Did you mean GATEWAY_SECRET?" in done.stderr
    assert SECRET not in done.stderr + done.stdout


def test_a_store_that_does_not_answer_is_named() -> None:
    url = f"http://127.0.0.1:{free_port()}"

    done = run_here("doctor", "--store", url, GATEWAY_SECRET=SECRET, GATEWAY_PORT=str(free_port()))

    assert done.returncode == 1
    assert f"error    Store: {url} does not answer: start it, or correct --store (GATEWAY_STORE).\n" in done.stdout


def test_an_address_in_use_is_a_warning(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        done = run_here("doctor", "--data-dir", tmp_path / "data", GATEWAY_PORT=str(port))

    assert f"warning  Address: 127.0.0.1:{port} is in use: a gateway is running there" in done.stdout
    assert done.returncode == 0


def test_an_address_of_another_machine_is_an_error(tmp_path: Path) -> None:
    done = run_here("doctor", "--data-dir", tmp_path / "data", GATEWAY_HOST="192.0.2.1")

    assert "error    Address: 192.0.2.1:8000 cannot be listened on (" in done.stdout
    assert done.returncode == 1


# --- The machine ------------------------------------------------------------------------------------------------------


def test_a_missing_engine_and_page_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "PAGE", tmp_path / "index.html")
    monkeypatch.setenv("DYNOXIDE_BINARY", str(tmp_path / "dynoxide"))

    done = run_here("doctor", "--data-dir", tmp_path / "data", DYNOXIDE_BINARY=str(tmp_path / "dynoxide"))

    assert "warning  GraphiQL: It is not built: run `make setup`." in done.stdout
    assert f"error    Programs: DYNOXIDE_BINARY names {tmp_path / 'dynoxide'}, which is not a file" in done.stdout
    assert done.returncode == 1


def test_the_programs_have_their_versions() -> None:
    found = list(check_programs(StoreOptions()))

    assert subjects(found, Level.OK) == [finding.subject for finding in found]
    assert only(found, "Engine").text.split()[0] in ("dynoxide", "MiniStack")


@pytest.mark.parametrize(
    ("free", "level"), [(0, Level.ERROR), (2**24, Level.WARNING), (2**29, Level.OK)], ids=["full", "filling", "enough"]
)
def test_the_disk_of_a_data_directory_is_checked(
    free: int, level: Level, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "free_space", lambda _: (free, 2**30))

    (finding,) = check_disk(tmp_path / "data" / "of" / "later")

    assert (finding.level, finding.subject) == (level, "Disk")
    assert f"{free // 2**20:,} MB of 1,024 MB are free" in finding.text


def test_too_few_open_files_for_the_connections_are_a_warning(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "raise_descriptor_limit", lambda: 1024)

    (few,) = check_open_files(replace(settings, capacity=Capacity(connections=10_000)))
    (enough,) = check_open_files(replace(settings, capacity=Capacity(connections=100)))

    assert few.level is Level.WARNING
    assert "1,024 files, too few for 10,000 connections" in few.text
    assert enough.level is Level.OK


def test_a_secret_file_that_others_may_read_is_a_warning(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    secret.chmod(0o644)

    (finding,) = check_secret_files({"GATEWAY_SECRET_FILE": str(secret)})

    assert finding.level is Level.WARNING
    assert f"run `chmod 600 {secret}`" in finding.text
    secret.chmod(0o600)
    assert list(check_secret_files({"GATEWAY_SECRET_FILE": str(secret)})) == []


# --- The services -----------------------------------------------------------------------------------------------------


async def test_a_redis_that_answers_and_one_that_is_away(settings: Settings, redis: RedisServer) -> None:
    away = f"redis://:password@127.0.0.1:{free_port()}"
    capacity = replace(settings.capacity, redis_url=redis.url)

    found = await listed(check_redis(replace(settings, capacity=capacity, bus=away)))

    assert [finding.level for finding in found] == [Level.OK, Level.ERROR]
    assert found[0].text.startswith(f"GATEWAY_REDIS_URL: 127.0.0.1:{redis.port} answers, version ")
    assert found[1].text.startswith("GATEWAY_BUS: 127.0.0.1:")
    assert "password" not in found[1].text


async def test_a_key_set_with_keys_and_one_without(settings: Settings) -> None:
    async with publishing() as publisher:
        chosen = replace(settings, jwks_url=publisher.url, issuer="issuer", audience="audience")
        (empty,) = await listed(check_key_set(chosen))
        publisher.keys = [published(RSA_ONE, "one")]
        (filled,) = await listed(check_key_set(chosen))

    assert (empty.level, filled.level) == (Level.ERROR, Level.OK)
    assert publisher.url in empty.text
    assert await listed(check_key_set(settings)) == []


# --- The store --------------------------------------------------------------------------------------------------------


async def test_the_tables_and_streams_of_a_prepared_store_are_in_order(
    database: Database, store_options: StoreOptions, settings: Settings
) -> None:
    found = await listed(check_store(store_options, settings))

    assert subjects(found, Level.OK) == ["Store", "Clock", "Tables", "Streams", "Gateways"]
    assert only(found, "Tables").text == f"All {len(TABLES)} are as declared."


async def test_missing_and_different_tables_are_errors(
    database: Database, store_options: StoreOptions, settings: Settings
) -> None:
    blip, feed = database.prefix + "blip", database.prefix + "feed"
    await database.client.call("DeleteTable", {"TableName": blip})
    off = {"TableName": feed, "StreamSpecification": {"StreamEnabled": False}}
    await database.client.call("UpdateTable", off)

    found = await listed(check_store(store_options, settings))

    errors = [finding.text for finding in found if finding.level is Level.ERROR]
    assert errors[0] == f"{blip} is missing: run `tables create`."
    assert errors[1].startswith(f"{feed}: ")
    assert errors[1].endswith("run `tables create --update`.")
    assert len(errors) == 2
    assert "Gateways" not in [finding.subject for finding in found]


async def test_a_running_gateway_with_another_secret_is_named(
    served: Served, store_options: StoreOptions, settings: Settings, clock: Clock
) -> None:
    other = replace(settings, secret="another secret, with which nothing was made")
    running = RunningGateway("host-b:8000", "run", clock(), fingerprints_of(other))
    await RunningGateways(served.gateway.open_store()).put(running)

    found = await listed(check_store(store_options, settings, clock))

    (finding,) = (finding for finding in found if "host-b:8000" in finding.text)
    assert finding.level is Level.ERROR
    assert finding.text.startswith("host-b:8000 runs with other values of GATEWAY_SECRET: ")

    later = clock() + 2 * STALE
    found = await listed(check_store(store_options, settings, lambda: later))
    assert only(found, "Gateways").text == "None is running on these tables."


async def test_a_clock_that_differs_from_the_stores_is_a_warning(
    database: Database, store_options: StoreOptions, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StoreClock, "skew", 90.4)

    clock = only(await listed(check_store(store_options, settings)), "Clock")

    assert clock.level is Level.WARNING
    assert clock.text.startswith("This machine's clock is 90 s behind the store's: set it by NTP.")
