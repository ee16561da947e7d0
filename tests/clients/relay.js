// relay-compiler over the committed schema, the operations given and what else is in the folder's `src`. Relay wants an
// operation named after its module, so each gets one. Says the names of what it compiled.

import { spawnSync } from "node:child_process";
import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { parse, print } from "graphql";

const { folder, schema } = JSON.parse(process.argv[2]);
const written = join(folder, "compiled");
await mkdir(written);

for (const text of JSON.parse(await readFile(join(folder, "operations.json"), "utf8"))) {
  const { definitions } = parse(text);
  const [{ name, operation }] = definitions;
  const kind = operation[0].toUpperCase() + operation.slice(1);
  const named = { ...definitions[0], name: { ...name, value: name.value + kind } };
  const module = `import { graphql } from "react-relay";\nexport default graphql\`\n${print(named)}\`;\n`;
  await writeFile(join(folder, "src", `${name.value}.js`), module);
}

const config = { src: "src", schema: "schema.graphql", language: "typescript", artifactDirectory: "compiled" };
await writeFile(join(folder, "schema.graphql"), await readFile(schema));
await writeFile(join(folder, "relay.config.json"), JSON.stringify({ ...config, noSourceControl: true }));
const compiler = join(import.meta.dirname, "node_modules/relay-compiler/cli.js");
const compiled = spawnSync(process.execPath, [compiler, "relay.config.json"], { cwd: folder, encoding: "utf8" });
if (compiled.status !== 0) throw new Error(compiled.stdout + compiled.stderr);
console.log(JSON.stringify((await readdir(written)).sort()));
