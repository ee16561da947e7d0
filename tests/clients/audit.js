// The server audit of graphql-http, as it comes. Says each audit's id, name, status, and why if it is not ok.

import { auditServer } from "graphql-http";

const { url } = JSON.parse(process.argv[2]);

for (const { id, name, status, ...rest } of await auditServer({ url })) {
  console.log(JSON.stringify({ id, name, status, reason: rest.reason ?? null }));
}
