"""Data of a build, and what it issued to clients: `python -m tests.support.upgrade_data [PROJECT FOLDER]`.

PROJECT is a checkout of the build with its environment. Without arguments it is this one, and FOLDER is
`tests/upgrades/VERSION` (`make upgrade-data`). FOLDER receives:

- `data.tar.xz`: the database of its embedded engine, with the demo's data, without pictures.
- `items.jsonl.xz`: the same items, a table's name and an item in DynamoDB's JSON per line, as an export has them.
- `issued.json`: its time, and the tokens, the cursors, the address of a picture, the id of an event and the response
  under an Idempotency-Key that it gave to clients.
"""

import asyncio
import json
import lzma
import sqlite3
import sys
import tarfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from graphql import FieldNode, OperationDefinitionNode, SelectionSetNode, Visitor, parse, print_ast, visit

from datastore.database import StoreOptions, open_database
from server.http.graphiql import Example, examples
from server.version import VERSION
from tests.support.command_line import GatewayProcess, serving_anew
from tests.support.example_runs import NAMES, find_variables
from tests.support.store_engines import ROOT
from tests.support.until import until_blocking

UPGRADES = ROOT / "tests" / "upgrades"
# The maximum size of the data of a build in the repository.
MOST_BYTES = 500_000
SECRET = "the secret of the gateway of an earlier build"
DATABASE = "engine.sqlite"
PAGE_INFO = parse("{ pageInfo { endCursor hasNextPage } }").definitions[0]
KEY, KEYED = "earlier-build", 'mutation { createPost(input: {text: "once"}) { postId } }'
PICTURES = "{ photos(first: 1) { edges { node { thumbnailUrl } } } }"
EVENTS = "subscription { sightingReported { description } }"
SETTLED_SECONDS = 5.0
# Further lists, by their field and arguments, and the role that reads them.
LISTS = {
    'sightings(area: "Downtown", first: 1, after: $after)': "user",
    'postsByTag(tag: "coffee", first: 1, after: $after)': "user",
    'notifications(userId: "demo", first: 1, after: $after)': "user",
    'followers(userId: "demo", first: 1, after: $after)': "user",
    'comments(postId: "demo-1", first: 1, after: $after)': "user",
    'likes(postId: "demo-1", first: 1, after: $after)': "user",
    "earthquakes(minMagnitude: 3, first: 1, after: $after)": "user",
    "persons(first: 1, after: $after)": "admin",
    "livestreams(first: 1, after: $after)": "user",
    "photoUsers(first: 1, after: $after)": "admin",
}


class EarlierClient(GatewayProcess):
    """A client of a gateway that has its tokens of an earlier build, by role."""

    def __init__(self, gateway: GatewayProcess, tokens: Mapping[str, str]) -> None:
        super().__init__(gateway.process, gateway.url, gateway.folder)
        self._tokens = {NAMES[role]: token for role, token in tokens.items()}

    def token(self, name: str = NAMES["user"]) -> str:
        return self._tokens[name]

    def first_event(self, query: str, headers: Mapping[str, str]) -> list[str]:
        """Return the codes of the errors in the first event of a subscription."""
        sent = {"Content-Type": "application/json", "Authorization": f"Bearer {self.token()}", **headers}
        with urlopen(Request(f"{self.url}/graphql", json.dumps({"query": query}).encode(), sent), timeout=30) as stream:
            for line in stream:
                if line.startswith(b"data: {"):
                    event = json.loads(line.removeprefix(b"data: "))
                    return [error["extensions"]["code"] for error in event.get("errors", ())]
        raise AssertionError("The stream ended without an event.")


def paged_examples() -> list[Example]:
    return [example for example in examples() if "after: $after" in example.query]


def cursor_query(query: str) -> str:
    """Return the query with nothing but the cursor of its list selected."""

    class Reduced(Visitor):
        def enter_field(self, node: FieldNode, *_: Any) -> FieldNode | None:
            if not any(argument.name.value == "after" for argument in node.arguments or ()):
                return None
            assert isinstance(PAGE_INFO, OperationDefinitionNode)
            return FieldNode(
                alias=node.alias, name=node.name, arguments=node.arguments, selection_set=PAGE_INFO.selection_set
            )

    document = parse(query)
    operations = [node for node in document.definitions if isinstance(node, OperationDefinitionNode)]
    reduced = visit(operations[0], Reduced())
    assert isinstance(reduced.selection_set, SelectionSetNode)
    return print_ast(reduced)


def page_info(data: Any) -> dict[str, Any]:
    """Return the page information of the only list in a response."""
    found = data["pageInfo"] if "pageInfo" in data else page_info(next(iter(data.values())))
    assert isinstance(found, dict)
    return found


def post_raw(gateway: GatewayProcess, query: str, token: str, **headers: str) -> Any:
    """POST an operation. Return the response, also if its status is an error."""
    sent = {"Content-Type": "application/json", "Authorization": f"Bearer {token}", **headers}
    try:
        with urlopen(Request(f"{gateway.url}/graphql", json.dumps({"query": query}).encode(), sent), timeout=20) as got:
            return json.load(got)
    except HTTPError as problem:
        with problem:
            return json.load(problem)


def first_event_id(gateway: GatewayProcess, token: str) -> str:
    """Return the id of the first event with one, which the demo's activity causes."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}", "Accept": "text/event-stream"}
    with urlopen(
        Request(f"{gateway.url}/graphql", json.dumps({"query": EVENTS}).encode(), headers), timeout=60
    ) as stream:
        found = ""
        for line in stream:
            if line.startswith(b"id:"):
                found = line.partition(b":")[2].strip().decode()
            if line.startswith(b"data: {") and found:
                return found
    raise AssertionError("The stream ended without an event.")


def _cursors(gateway: GatewayProcess, variables: dict[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    lists = [
        (each.name, each.run_as or "user", cursor_query(each.query), variables[each.name]) for each in paged_examples()
    ]
    lists += [
        (
            call.partition("(")[0],
            role,
            f"query ($after: String) {{ {call} {{ pageInfo {{ endCursor hasNextPage }} }} }}",
            {},
        )
        for call, role in LISTS.items()
    ]
    for name, role, query, values in lists:
        answer = gateway.ask(query, gateway.token(NAMES[role]), values)
        if "errors" in answer:  # the earlier schema has another form of it
            print(f"{name}: {answer['errors'][0]['message']}", file=sys.stderr)
            continue
        info = page_info(answer["data"])
        if info["hasNextPage"]:
            yield {"name": name, "role": role, "query": query, "variables": values, "cursor": info["endCursor"]}


def _variables(data: Path, copied: Path, tokens: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return the variables of the paged examples, which the present build finds in a copy of the data."""
    _copy_database(data, copied)
    with serving_anew(copied, "--no-demo", GATEWAY_SECRET=SECRET) as started:
        gateway = EarlierClient(started, tokens)
        return {example.name: find_variables(example, gateway) or {} for example in paged_examples()}


def _copy_database(data: Path, target: Path) -> None:
    """Copy the database of an engine, which may be running."""
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    with closing(sqlite3.connect(data / DATABASE)) as source, closing(sqlite3.connect(target / DATABASE)) as copy:
        source.backup(copy)


async def _export(data: Path) -> list[str]:
    """Return all items, a line of JSON each."""
    lines = []
    async with open_database(StoreOptions("embedded", data_dir=data)) as database:
        names = (await database.client.call("ListTables", {}))["TableNames"]
        for name in names:
            request: dict[str, Any] = {"TableName": name}
            while True:
                page = await database.client.call("Scan", request)
                lines += [json.dumps({"table": name, "item": item}, sort_keys=True) for item in page["Items"]]
                if not page.get("LastEvaluatedKey"):
                    break
                request["ExclusiveStartKey"] = page["LastEvaluatedKey"]
    return lines


def load_items(store: str, prefix: str, lines: Iterable[str]) -> None:
    """Store exported items in existing tables."""

    async def load() -> None:
        async with open_database(StoreOptions(store, prefix=prefix)) as database:
            for line in lines:
                found = json.loads(line)
                await database.client.call("PutItem", {"TableName": prefix + found["table"], "Item": found["item"]})

    asyncio.run(load())


def make_upgrade_data(project: Path, target: Path) -> None:
    """Run the build in `project`, and write its data to `target`."""
    with TemporaryDirectory() as folder:
        data = Path(folder, "data")
        with serving_anew(data, root=project, GATEWAY_SECRET=SECRET) as gateway:
            token = gateway.token()
            until_blocking(lambda: "data" in gateway.ask(PICTURES, token), 60)
            time.sleep(SETTLED_SECONDS)  # the pipelines count and fan out the demo's items
            issued: dict[str, Any] = {
                "tokens": {role: gateway.token(name) for role, name in NAMES.items()},
                "key": KEY,
                "keyed": KEYED,
                "response": post_raw(gateway, KEYED, token, **{"Idempotency-Key": KEY}),
                "picture": gateway.data(PICTURES, token)["photos"]["edges"][0]["node"]["thumbnailUrl"].removeprefix(
                    gateway.url
                ),
                "event_id": first_event_id(gateway, token),
            }
            variables = _variables(data, Path(folder, "copy"), issued["tokens"])
            issued["cursors"] = list(_cursors(gateway, variables))
            issued["moment"] = datetime.now(UTC).isoformat()
            gateway.stop(15)
        target.mkdir(parents=True, exist_ok=True)
        with tarfile.open(target / "data.tar.xz", "w:xz", preset=9) as archive:
            archive.add(data / DATABASE, DATABASE)
        lines = asyncio.run(_export(data))
    with lzma.open(target / "items.jsonl.xz", "wt", preset=9) as file:
        file.write("\n".join(lines) + "\n")
    (target / "issued.json").write_text(json.dumps(issued, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    project, folder = sys.argv[1:] or (ROOT, UPGRADES / VERSION)
    make_upgrade_data(Path(project).resolve(), Path(folder))
