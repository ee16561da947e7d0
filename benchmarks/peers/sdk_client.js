// DynamoDB by the AWS SDK, with its document client.

import { Agent } from 'node:http'

import { DynamoDBClient } from '@aws-sdk/client-dynamodb'
import { BatchGetCommand, DynamoDBDocumentClient, GetCommand, QueryCommand } from '@aws-sdk/lib-dynamodb'
import { NodeHttpHandler } from '@smithy/node-http-handler'

const CONNECTIONS = 128

export function sdkClient(endpoint) {
  const client = new DynamoDBClient({
    endpoint,
    region: 'local',
    credentials: { accessKeyId: process.env.GATEWAY_ENGINE_KEY, secretAccessKey: 'local' },
    requestHandler: new NodeHttpHandler({ httpAgent: new Agent({ keepAlive: true, maxSockets: CONNECTIONS }) }),
  })
  const documents = DynamoDBDocumentClient.from(client)
  return {
    async get(TableName, Key) {
      const answer = await documents.send(new GetCommand({ TableName, Key, ReturnConsumedCapacity: 'TOTAL' }))
      return answer.Item
    },
    async batchGet(table, Keys) {
      const RequestItems = { [table]: { Keys } }
      const answer = await documents.send(new BatchGetCommand({ RequestItems, ReturnConsumedCapacity: 'TOTAL' }))
      return { items: answer.Responses?.[table] ?? [], unprocessed: answer.UnprocessedKeys?.[table]?.Keys ?? [] }
    },
    async query(request) {
      const answer = await documents.send(new QueryCommand({ ...request, ReturnConsumedCapacity: 'TOTAL' }))
      return answer.Items ?? []
    },
  }
}
