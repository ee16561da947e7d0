// Runs relay-compiler over the schema, the operations given and what else is in the folder's `src`.

import { spawnSync } from "node:child_process";
import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { parse, print } from "graphql";

// Relay wants an operation named after its module, and after its kind.
export const moduleOf = ({ name, operation }) => name.value + operation[0].toUpperCase() + operation.slice(1);

// Write the artifacts into the folder's `compiled`, and return their names.
export async function compileOperations({ folder, schema, language }) {
  const written = join(folder, "compiled");
  await mkdir(join(folder, "src"), { recursive: true });
  await mkdir(written);
  for (const text of JSON.parse(await readFile(join(folder, "operations.json"), "utf8"))) {
    const [definition, ...fragments] = parse(text).definitions;
    const named = { ...definition, name: { ...definition.name, value: moduleOf(definition) } };
    const document = { kind: "Document", definitions: [named, ...fragments] };
    const module = `import { graphql } from "react-relay";\nexport default graphql\`\n${print(document)}\`;\n`;
    await writeFile(join(folder, "src", `${definition.name.value}.js`), module);
  }
  await writeFile(join(folder, "schema.graphql"), await readFile(schema));
  const config = { src: "src", schema: "schema.graphql", language, artifactDirectory: "compiled" };
  const options = { noSourceControl: true, eagerEsModules: true };
  await writeFile(join(folder, "relay.config.json"), JSON.stringify({ ...config, ...options }));
  const compiler = join(import.meta.dirname, "node_modules/relay-compiler/cli.js");
  const compiled = spawnSync(process.execPath, [compiler, "relay.config.json"], { cwd: folder, encoding: "utf8" });
  if (compiled.status !== 0) throw new Error(compiled.stdout + compiled.stderr);
  return (await readdir(written)).sort();
}
