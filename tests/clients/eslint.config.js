// Lints schema/api.graphql under graphql-eslint's presets "schema-recommended" and "schema-relay", every rule an error.
//
//     npm run --prefix tests/clients lint
//
// Where the API's form is fixed and a rule asks for another, exactly those types and fields are excepted here. An
// exception that is not needed any more is an error too.

import { readFileSync } from "node:fs";

import graphql from "@graphql-eslint/eslint-plugin";
import { buildSchema } from "graphql";

// An item's own id keeps the name it is stored under, beside the global `id` that Relay asks for; a device's token
// keeps Apple's.
const schema = buildSchema(readFileSync("schema/api.graphql", "utf8"));
const NAMED_AS_STORED = [
  ...schema.getPossibleTypes(schema.getType("Node")).flatMap(ownId),
  "Ball.ballId",
  "Device.deviceToken",
  "Lock.lockKey",
  "Season.seasonId",
  "User.userProfile", // a link is named after its type
  "Venue.venueId",
];

function ownId(type) {
  const field = `${type.name[0].toLowerCase()}${type.name.slice(1)}Id`;
  return field in type.getFields() ? [`${type.name}.${field}`] : [];
}

// Items that are read in lists alone: no point read makes them a `Node`.
const READ_IN_LISTS = ["FeedEntry", "Follower", "Following", "Like", "RequestLog"];

const without = {
  "no-typename-prefix": NAMED_AS_STORED,
  // No field has the enum of error codes: clients generate their codes from it.
  "no-unreachable-types": ["ErrorCode"],
  "relay-edge-types": READ_IN_LISTS.map((type) => `${type}Edge`),
};

const plugin = { ...graphql, rules: { ...graphql.rules } };
for (const [name, coordinates] of Object.entries(without)) {
  plugin.rules[name] = excepting(graphql.rules[name], coordinates);
}

export default [
  {
    files: ["**/*.graphql"],
    languageOptions: {
      parser: graphql.parser,
      parserOptions: { graphQLConfig: { schema: "schema/api.graphql" } },
    },
    plugins: { "@graphql-eslint": plugin },
    linterOptions: { noInlineConfig: true },
    rules: {
      ...graphql.configs["flat/schema-recommended"].rules,
      ...graphql.configs["flat/schema-relay"].rules,
      // Relay's own types have no id.
      "@graphql-eslint/strict-id-in-types": [
        "error",
        { exceptions: { types: ["PageInfo"], suffixes: ["Connection", "Edge"] } },
      ],
      // Relay's specification accepts connections that page forward only, as searches do.
      "@graphql-eslint/relay-arguments": ["error", { includeBoth: false }],
      // Connections have `nodes` beside `edges`, and what is short and bounded (innings, tags) is a plain list.
      "@graphql-eslint/relay-edge-types": ["error", { listTypeCanWrapOnlyEdgeType: false }],
    },
  },
];

// The rule, silent about these types (`Type`) and fields (`Type.field`), and not about those it has nothing against.
function excepting(rule, coordinates) {
  return {
    ...rule,
    create(context) {
      const unused = new Set(coordinates);
      const report = (problem) => {
        const coordinate = coordinateOf(problem.node);
        if (coordinates.includes(coordinate)) unused.delete(coordinate);
        else context.report(problem);
      };
      const visitors = rule.create(Object.create(context, { report: { value: report } }));
      const atEnd = (node) => {
        for (const coordinate of unused) {
          context.report({ node, message: `The exception for ${coordinate} is not needed.` });
        }
      };
      return { ...visitors, "Program:exit": atEnd };
    },
  };
}

function coordinateOf(name) {
  const definition = name.parent;
  return definition.kind === "FieldDefinition" ? `${definition.parent.name.value}.${name.value}` : name.value;
}
