"""Tools of API users accept the committed schema: graphql-eslint, graphql-codegen, TypeScript and Relay."""

import json
import subprocess
from pathlib import Path

from server.http.graphiql import examples
from tests.support.node_client import CLIENTS, NODE, run_node_script
from tests.support.store_engines import ROOT

SCHEMA = str(ROOT / "schema" / "api.graphql")
COMPILER_OPTIONS = {
    "strict": True,
    "noEmit": True,
    "target": "es2022",
    "module": "nodenext",
    "types": [],
    "skipLibCheck": True,
}
# A program that uses the generated types. The errors that it expects must occur.
PROGRAM = """
import type { ResultOf, VariablesOf } from "@graphql-typed-document-node/core";
import { ActiveSightingsDocument, OneSightingDocument } from "./operations.js";
import type { Sighting } from "./schema.js";

export function areas(answer: ResultOf<typeof ActiveSightingsDocument>): string[] {
  return answer.sightings.nodes.flatMap((sighting) => (sighting ? [sighting.category] : []));
}
export const asked: VariablesOf<typeof OneSightingDocument> = { id: "x" };
// @ts-expect-error An id is needed.
export const nothing: VariablesOf<typeof OneSightingDocument> = {};
export const reportedAt = (sighting: Sighting): string => sighting.reportedAt;
// @ts-expect-error Confidence is a number.
export const confidence = (sighting: Sighting): string => sighting.confidence;
"""
# Relay also pages through connections, and reads entities again by id.
PAGES = """
import { graphql } from "react-relay";
export const list = graphql`
  fragment Pages_list on Query
  @refetchable(queryName: "PagesListQuery")
  @argumentDefinitions(count: { type: "Int", defaultValue: 10 }, cursor: { type: "String" }) {
    sightings(area: "Harbor", first: $count, after: $cursor) @connection(key: "Pages_sightings") {
      edges { node { ...Pages_sighting } }
    }
  }
`;
export const sighting = graphql`
  fragment Pages_sighting on Sighting @refetchable(queryName: "PagesSightingQuery") { sightingId confidence }
`;
export default graphql`query PagesQuery { ...Pages_list }`;
"""


def queries_of_examples() -> list[str]:
    return [example.query for example in examples()]


def test_the_schema_lints_clean() -> None:
    assert NODE is not None
    eslint = CLIENTS / "node_modules" / "eslint" / "bin" / "eslint.js"
    arguments = ["--config", str(CLIENTS / "eslint.config.js"), "--format", "json", SCHEMA]
    linted = subprocess.run([NODE, eslint, *arguments], cwd=ROOT, capture_output=True, text=True)
    assert linted.returncode in (0, 1), linted.stderr
    (report,) = json.loads(linted.stdout)
    assert [(message["ruleId"], message["message"]) for message in report["messages"]] == []


async def test_codegen_and_typescript_accept_the_schema_and_every_example(tmp_path: Path) -> None:
    (tmp_path / "operations.json").write_text(json.dumps(queries_of_examples()))
    (tmp_path / "program.ts").write_text(PROGRAM)
    (tmp_path / "tsconfig.json").write_text(json.dumps({"compilerOptions": COMPILER_OPTIONS, "files": ["program.ts"]}))
    written = await run_node_script("codegen.js", folder=str(tmp_path), schema=SCHEMA)
    assert [file["filename"] for file in written] == ["schema.ts", "operations.ts"]
    assert all(file["lines"] > 1000 for file in written)


async def test_relay_compiles_every_example(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "Pages.js").write_text(PAGES)
    (tmp_path / "operations.json").write_text(json.dumps(queries_of_examples()))
    (compiled,) = await run_node_script("relay.js", folder=str(tmp_path), schema=SCHEMA)
    assert {"PagesListQuery.graphql.ts", "PagesSightingQuery.graphql.ts"} <= set(compiled)
    assert len(compiled) == len(queries_of_examples()) + 5
