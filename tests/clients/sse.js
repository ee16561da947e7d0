// graphql-sse in its distinct connections mode. Each line of the standard input is an operation: its results are said,
// and how it ended: by itself, by an error, or left after `take` results.

import { createInterface } from "node:readline";
import { createClient } from "graphql-sse";

const { url, headers } = JSON.parse(process.argv[2]);
const client = createClient({ url, headers, retryAttempts: 0 });
const say = (value) => console.log(JSON.stringify(value));

for await (const line of createInterface({ input: process.stdin })) {
  const { take, ...operation } = JSON.parse(line);
  let count = 0;
  try {
    for await (const result of client.iterate(operation)) {
      say({ next: result });
      count += 1;
      if (count === take) break;
    }
    say(count === take ? { left: count } : { complete: count });
  } catch (error) {
    say({ error: error.message });
  }
}
