// How a script and its test talk: one JSON value on a line, both ways.

import { createInterface } from "node:readline";

export const given = JSON.parse(process.argv[2]);
export const say = (value) => console.log(JSON.stringify(value));

let lines;

// The next thing that the test says.
export async function told() {
  lines ??= createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  return JSON.parse((await lines.next()).value);
}
