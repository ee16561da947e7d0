// Generates a TypeScript client: npm run client -- OUT DOCUMENT.graphql…
// OUT gets documents.ts, with a typed document for each operation, and copies of transport.ts and follow.ts.
import { copyFile, mkdir, readFile, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { codegen } from "@graphql-codegen/core";
import * as typedDocumentNode from "@graphql-codegen/typed-document-node";
import * as typescriptOperations from "@graphql-codegen/typescript-operations";
import { parse } from "graphql";

const HERE = import.meta.dirname;
const SCHEMA = join(HERE, "../../schema/api.graphql");
const [out, ...documents] = process.argv.slice(2);
if (!out || documents.length === 0) {
  console.error("Name a folder for the client, and the files with your documents: npm run client -- OUT DOCUMENT.graphql…");
  process.exit(2);
}

const input = {
  schema: parse(await readFile(process.env.SCHEMA ?? SCHEMA, "utf8")),
  documents: await Promise.all(
    documents.map(async (location) => ({ location, document: parse(await readFile(location, "utf8")) })),
  ),
  config: { documentMode: "string", scalars: { ID: "string", DateTime: "string", Date: "string" }, useTypeImports: true },
};
const pluginMap = { typescriptOperations, typedDocumentNode };
const plugins = Object.keys(pluginMap).map((name) => ({ [name]: {} }));

await mkdir(out, { recursive: true });
await writeFile(join(out, "documents.ts"), await codegen({ ...input, filename: "documents.ts", plugins, pluginMap }));
for (const name of ["transport.ts", "follow.ts"]) await copyFile(join(HERE, name), join(out, name));
console.log(`The client is in ${resolve(out)}.`);
