// graphql-codegen over the committed schema and the operations given, into `folder`; TypeScript then checks its output
// together with the programs that are there already. Says what each wrote; the compiler's complaints end it badly.

import { spawnSync } from "node:child_process";
import { readFile, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { codegen } from "@graphql-codegen/core";
import * as typedDocumentNode from "@graphql-codegen/typed-document-node";
import * as typescript from "@graphql-codegen/typescript";
import * as typescriptOperations from "@graphql-codegen/typescript-operations";
import { parse } from "graphql";

const { folder, schema } = JSON.parse(process.argv[2]);
const operations = JSON.parse(await readFile(join(folder, "operations.json"), "utf8"));
const input = {
  schema: parse(await readFile(schema, "utf8")),
  documents: operations.map((text, number) => ({ location: `${number}.graphql`, document: parse(text) })),
  config: { scalars: { DateTime: "string", Date: "string" }, useTypeImports: true },
};
const files = {
  "schema.ts": { typescript },
  "operations.ts": { typescriptOperations, typedDocumentNode },
};

for (const [filename, pluginMap] of Object.entries(files)) {
  const plugins = Object.keys(pluginMap).map((name) => ({ [name]: {} }));
  const written = await codegen({ ...input, filename, plugins, pluginMap });
  await writeFile(join(folder, filename), written);
  console.log(JSON.stringify({ filename, lines: written.split("\n").length }));
}

await symlink(join(import.meta.dirname, "node_modules"), join(folder, "node_modules"));
const compiler = join(import.meta.dirname, "node_modules/typescript/bin/tsc");
const checked = spawnSync(process.execPath, [compiler, "--project", folder], { encoding: "utf8" });
if (checked.status !== 0) throw new Error(checked.stdout + checked.stderr);
