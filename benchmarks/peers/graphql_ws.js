// Subscriptions over graphql-ws with graphql-js, or with graphql-jit (--jit): one execution for each subscriber.
// The changes of a table's stream are published to the in-process PubSub of graphql-subscriptions.

import { EventEmitter } from "node:events";
import { createServer } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";

import {
  DescribeStreamCommand,
  DynamoDBStreamsClient,
  GetRecordsCommand,
  GetShardIteratorCommand,
  ListStreamsCommand,
} from "@aws-sdk/client-dynamodb-streams";
import { unmarshall } from "@aws-sdk/util-dynamodb";
import { buildSchema, parse, validate } from "graphql";
import { compileQuery } from "graphql-jit";
import { PubSub } from "graphql-subscriptions";
import { useServer } from "graphql-ws/use/ws";
import { WebSocketServer } from "ws";

const { values: given } = parseArgs({
  options: {
    store: { type: "string" },
    port: { type: "string" },
    table: { type: "string" },
    interval: { type: "string" },
    jit: { type: "boolean", default: false },
  },
});

const schema = buildSchema(`
  type Query { ready: Boolean! }
  type Innings { runs: Int! wickets: Int! overs: String! }
  type LiveScore { status: String! innings: [Innings!]! }
  type MatchUpdate { matchId: ID! version: Int! changed: [String!]! liveScore: LiveScore! }
  type Earthquake { eventId: ID! magnitude: Float! place: String! latitude: Float! longitude: Float! }
  type Subscription { matchUpdates(matchId: ID!): MatchUpdate! earthquakeDetected: Earthquake! }
`);
const pubsub = new PubSub({ eventEmitter: new EventEmitter().setMaxListeners(0) });
const { matchUpdates, earthquakeDetected } = schema.getSubscriptionType().getFields();
matchUpdates.subscribe = (_, { matchId }) => pubsub.asyncIterableIterator(`match ${matchId}`);
earthquakeDetected.subscribe = () => pubsub.asyncIterableIterator("earthquakes");

function publish(record) {
  const image = record.dynamodb.NewImage && unmarshall(record.dynamodb.NewImage);
  if (!image) return;
  if (given.table === "active-matches") {
    pubsub.publish(`match ${image.matchId}`, { matchUpdates: matchUpdate(image) });
  } else if (record.eventName === "INSERT" && image.sk === "EVENT") {
    pubsub.publish("earthquakes", { earthquakeDetected: earthquake(image) });
  }
}

function matchUpdate(image) {
  const { innings = [] } = JSON.parse(image.previousScore);
  return {
    matchId: image.matchId,
    version: image.version,
    changed: [...image.changed].map((part) => part.toUpperCase()),
    liveScore: { status: image.previousStatus, innings: innings.map(total) },
  };
}

// Defaults are not stored.
function total({ runs = 0, wickets = 0, completed_overs = 0, balls = 0 }) {
  return { runs, wickets, overs: balls ? `${completed_overs}.${balls}` : `${completed_overs}` };
}

function earthquake({ eventId, mag, place, lat, lon }) {
  return { eventId, magnitude: mag, place, latitude: lat, longitude: lon };
}

const streams = new DynamoDBStreamsClient({
  endpoint: given.store,
  region: "us-east-1",
  credentials: { accessKeyId: process.env.GATEWAY_ENGINE_KEY, secretAccessKey: "local" },
});

async function follow() {
  const { Streams } = await streams.send(new ListStreamsCommand({ TableName: given.table }));
  const StreamArn = Streams.at(-1).StreamArn;
  const { StreamDescription } = await streams.send(new DescribeStreamCommand({ StreamArn }));
  for (const { ShardId } of StreamDescription.Shards) {
    const from = { StreamArn, ShardId, ShardIteratorType: "LATEST" };
    const { ShardIterator } = await streams.send(new GetShardIteratorCommand(from));
    read(ShardIterator);
  }
}

async function read(iterator) {
  while (iterator) {
    const answer = await streams.send(new GetRecordsCommand({ ShardIterator: iterator, Limit: 1000 }));
    const due = performance.now() + Number(given.interval) * 1000;
    answer.Records.forEach(publish);
    iterator = answer.NextShardIterator;
    await sleep(Math.max(0, due - performance.now()));
  }
}

const compiled = new Map();

// Compiled documents by their text, because graphql-jit has no cache. graphql-jit passes variables to `subscribe` in
// place of arguments, so both must have the same names.
function onSubscribe(_ctx, _id, { query, operationName, variables }) {
  let found = compiled.get(query);
  if (!found) {
    const document = parse(query);
    const errors = validate(schema, document);
    if (errors.length) return errors;
    found = { document, run: compileQuery(schema, document, operationName ?? undefined) };
    compiled.set(query, found);
  }
  return { schema, document: found.document, operationName, variableValues: variables, run: found.run };
}

const jit = {
  onSubscribe,
  subscribe: ({ run, rootValue, contextValue, variableValues }) => run.subscribe(rootValue, contextValue, variableValues),
};

const http = createServer((_, response) => response.end());
useServer({ schema, ...(given.jit ? jit : {}) }, new WebSocketServer({ server: http, path: "/graphql" }));
await follow();
http.listen({ port: Number(given.port), host: "127.0.0.1", backlog: 2048 });
