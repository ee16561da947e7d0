"""The command `doctor`."""

import os
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from datastore.database import StoreOptions
from runtime.cli.options import DATA_DIR, takes_store
from runtime.configuration import settings_of
from runtime.console import USER_ERRORS, run
from runtime.doctor.findings import Check, Finding, Level, findings_of
from runtime.doctor.machine import check_address, check_disk, check_open_files, check_programs
from runtime.doctor.services import check_key_set, check_redis, check_search
from runtime.doctor.store import check_store
from runtime.doctor.variables import check_secret_files, check_variables
from server.settings import Misconfigured, Settings

PROBLEMS = (*USER_ERRORS, OSError, TimeoutError)
# The options of `serve` that are settings of the machine's checks.
OPTIONS = ("host", "port", "bus")
# Stands for the secret that the first start of an embedded store generates.
NO_SECRET_YET = "0" * 32
WIDTH = 7


@takes_store
def check_installation(context: typer.Context, *, store: StoreOptions) -> None:
    """Check the machine, the settings, the services and the store, and say what to do.

    The settings are those of `serve`, from the environment. Nothing is created or changed. The exit status is 1 if
    there is an error.
    """
    commands = context.find_root().command
    assert isinstance(commands, TyperGroup)
    errors = run(lambda: _print_findings(_all_findings(commands, store)))
    if errors:
        raise typer.Exit(1)


async def _print_findings(findings: AsyncIterator[Finding]) -> int:
    """Print each finding as soon as it is found. Return the number of errors."""
    errors = 0
    async for finding in findings:
        errors += finding.level is Level.ERROR
        typer.echo(f"{finding.level:<{WIDTH}}  {finding.subject}: {finding.text}")
    return errors


async def _all_findings(commands: TyperGroup, store: StoreOptions) -> AsyncIterator[Finding]:
    settings, problems = _settings(commands, store)
    checks: dict[str, Check] = {
        "Programs": partial(check_programs, store),
        "Settings": partial(check_variables, commands),
        "Secrets": check_secret_files,
    }
    if not store.in_aws and not store.memory:
        checks["Disk"] = partial(check_disk, store.data_dir or DATA_DIR)
    reported = set()
    for subject, check in checks.items():
        async for finding in findings_of(subject, check, PROBLEMS):
            reported.add(finding.text)
            yield finding
    for problem in problems:
        if problem not in reported:
            yield Finding(Level.ERROR, "Settings", problem)
    if settings is None:
        yield Finding(Level.WARNING, "Store", "It was not checked: correct the settings first.")
        return
    checks = {
        "Open files": partial(check_open_files, settings),
        "Address": partial(check_address, settings),
        "Redis": partial(check_redis, settings),
        "Tokens": partial(check_key_set, settings),
        "Search": partial(check_search, store, settings),
        "Store": partial(check_store, store, settings),
    }
    for subject, check in checks.items():
        async for finding in findings_of(subject, check, PROBLEMS):
            yield finding


def _settings(commands: TyperGroup, store: StoreOptions) -> tuple[Settings | None, list[str]]:
    """Return the settings of `serve`, or None and the problems of its options and of combinations of settings."""
    options: dict[str, Any] = {}
    try:
        with commands.commands["serve"].make_context("serve", []) as context:
            options = {name: context.params[name] for name in OPTIONS}
    except TyperException as problem:
        return None, [" ".join(problem.format_message().split())]
    folder = store.data_dir or DATA_DIR
    if store.embedded and not (folder / "secret").is_file():
        options["secret"] = os.environ.get("GATEWAY_SECRET") or NO_SECRET_YET
    try:
        return settings_of(store, folder, **options), []
    except Misconfigured as problem:
        return None, [str(problem)]
