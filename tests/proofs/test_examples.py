"""The programs of examples/ work as they say, against a served gateway."""

import json
import re
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path

import aiohttp
import pytest

from datastore.database import StoreOptions
from datastore.keyspace.earthquakes import EARTHQUAKES
from datastore.keyspace.sightings import BLIP
from datastore.matches.cricket_events import CricketEvent, CricketEventKind
from runtime.container import Gateway
from server.settings import Settings
from tests.support.earthquake_samples import quake, store
from tests.support.example_programs import EXAMPLES, ExampleProgram, run_example, running_example
from tests.support.feed_steps import create_profiles, follow_user, mutate, write_post
from tests.support.feed_workload_steps import pipeline
from tests.support.match_updates import advance, register_at_version_1
from tests.support.served import Clock, Served, Tidied, listening
from tests.support.store_engines import make_tables
from tests.support.until import until_async

MOST_LINES = 150
PROGRAMS = sorted(
    path
    for suffix in ("js", "jsx", "ts", "py", "sh")
    for path in EXAMPLES.rglob(f"*.{suffix}")
    if not {"node_modules", "__generated__", "build", "dist", "gateway"} & set(path.relative_to(EXAMPLES).parts)
)
REPORT = "mutation ($input: ReportSightingInput!) { reportSighting(input: $input) { id } }"


def scored(number: int) -> CricketEvent:
    return CricketEvent(f"m1:{number}", CricketEventKind.FOUR, f"Four number {number}", 1, f"{number}/0")


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: str(path.relative_to(EXAMPLES)))
def test_an_example_is_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MOST_LINES


def test_the_readme_names_every_example() -> None:
    text = (EXAMPLES / "README.md").read_text()
    folders = {path.relative_to(EXAMPLES).parts[0] for path in PROGRAMS if path.parent != EXAMPLES}
    assert folders - set(re.findall(r"\]\(([\w-]+)/", text)) == set()


@asynccontextmanager
async def restartable(
    settings: Settings, store_options: StoreOptions, clock: Clock
) -> AsyncIterator[tuple[Gateway, Served]]:
    """Open a gateway that does not listen yet: `listening(gateway)` starts and stops its server."""
    gateway = Tidied(settings, store_options, now=clock)
    async with gateway.running(), aiohttp.ClientSession() as http:
        assert gateway.database is not None
        await make_tables(gateway.database)
        yield gateway, Served(gateway, settings.url, http, clock)


@pytest.mark.parametrize("program", ["node-graphql-ws/follow-match.js", "typescript/build/main.js"])
async def test_a_followed_match_resumes_after_a_restart(
    program: str, settings: Settings, store_options: StoreOptions, clock: Clock
) -> None:
    if program.startswith("typescript"):
        compile_client()
    async with restartable(settings, store_options, clock) as (gateway, served), AsyncExitStack() as stack:
        async with listening(gateway):
            await register_at_version_1(served, "m1")
            example = await stack.enter_async_context(running_example(served, "node", program))
            await read_until(example, "^(m1 |Version 1: )")
            await advance(served, "m1", scored(2))
            assert await read_until(example, "Four") == "2/0 Four number 2"
        await advance(served, "m1", scored(3))
        async with listening(gateway):
            await advance(served, "m1", scored(4))
            assert [await read_until(example, "Four") for _ in range(2)] == ["3/0 Four number 3", "4/0 Four number 4"]


def compile_client() -> None:
    """Generate the client as the script `typescript` of examples/package.json does, without running its program."""
    scripts = json.loads((EXAMPLES / "package.json").read_text())["scripts"]
    for command in scripts["typescript"].split(" && ")[:-1]:
        subprocess.run(f"PATH=$PWD/node_modules/.bin:$PATH {command}", cwd=EXAMPLES, shell=True, check=True)


async def read_until(example: ExampleProgram, pattern: str) -> str:
    """Read lines up to one that matches. Return it without the name of the match."""
    while True:
        line = await example.line()
        if re.search(pattern, line):
            return line.removeprefix("m1 ")


async def test_the_list_of_sightings_stays_current(served: Served) -> None:
    await mutate(served, REPORT, "bob", input={"area": "Harbor", "category": "Cats", "description": "first"})
    async with running_example(served, "node", "urql-graphql-sse/watch-sightings.js", "Harbor", user="ada") as example:
        assert await example.lines(2) == ["Harbor:", "  Cats: first"]
        await served.settle(BLIP)
        await mutate(served, REPORT, "bob", input={"area": "Harbor", "category": "Cats", "description": "second"})
        assert await example.lines(3) == ["Harbor:", "  Cats: second", "  Cats: first"]


async def test_the_python_client_pages_and_follows(served: Served) -> None:
    await store(served, *[quake(f"q{number:02}", timedelta(minutes=number)) for number in range(25)])
    command = ("python", "python-gql/earthquakes.py", "4.5")

    assert len((await run_example(served, *command)).splitlines()) == 20
    async with running_example(served, *command, "--pages", "3", "--follow") as example:
        pages = await example.lines(25)
        assert pages[0].endswith("   4.5  1 km N of Here")
        await served.settle(EARTHQUAKES)
        await store(served, quake("new", magnitude=7.25, place="the new place"))
        assert (await example.line()).endswith("   7.2  the new place")


async def test_the_shell_script_reads_a_feed_page_by_page(served: Served) -> None:
    await create_profiles(served, "ada", "bob")
    await follow_user(served, "ada", "bob")
    for number in range(12):
        await write_post(served, f"p{number:02}", "bob")
    async with pipeline(served):
        await until_async(lambda: has_entries(served, 12))

    assert (await run_example(served, "bash", "shell/feed.sh", "feed", "ada", "2", user="ada")).splitlines() == [
        "Bob: Hello (0)"
    ] * 12
    assert len((await run_example(served, "bash", "shell/feed.sh", "feed", "ada", user="ada")).splitlines()) == 10


async def has_entries(served: Served, number: int) -> bool:
    """Return whether ada's feed has that many entries."""
    answer = await served.ask('{ homeFeed(userId: "ada", first: 100) { nodes { id } } }', user="ada")
    return len(answer.data["homeFeed"]["nodes"]) == number


async def test_the_shell_script_posts_and_follows(served: Served) -> None:
    await create_profiles(served, "ada")

    post_id = (await run_example(served, "bash", "shell/feed.sh", "post", "From the shell", user="ada")).strip()
    answer = await served.ask("query ($id: ID!) { post(id: $id) { text } }", {"id": post_id})
    assert answer.data == {"post": {"text": "From the shell"}}

    async with running_example(served, "bash", "shell/feed.sh", "follow", post_id) as example:
        assert await example.line() == "0 likes, 0 comments"


async def test_the_shell_script_prints_the_code_of_an_error(served: Served) -> None:
    async with running_example(served, "bash", "shell/feed.sh", "post", "Without a token") as example:
        status, out, errors = await example.end()

    assert (status, out) == (1, "")
    assert errors.startswith("UNAUTHENTICATED: ")
