// A hand-written DynamoDB client: signed requests over persistent connections, and only the decoding that is needed here.

import { createHmac, hash } from 'node:crypto'

import { Pool } from 'undici'

const CONNECTIONS = 128
const REGION = 'local'
const ACCESS_KEY = process.env.GATEWAY_ENGINE_KEY
const SECRET_KEY = 'local'
const CONTENT_TYPE = 'application/x-amz-json-1.0'
const SIGNED = 'content-type;host;x-amz-date;x-amz-target'

const hmac = (key, text) => createHmac('sha256', key).update(text).digest()

/** Signature Version 4 for requests to DynamoDB. The signing key is derived once a day. */
function signer(host) {
  let keyDay = ''
  let key
  return (target, body) => {
    const stamp = new Date().toISOString().replace(/[-:]|\.\d{3}/g, '')
    const day = stamp.slice(0, 8)
    if (day !== keyDay) {
      key = [day, REGION, 'dynamodb', 'aws4_request'].reduce(hmac, `AWS4${SECRET_KEY}`)
      keyDay = day
    }
    const canonical =
      `POST\n/\n\ncontent-type:${CONTENT_TYPE}\nhost:${host}\nx-amz-date:${stamp}\nx-amz-target:${target}\n` +
      `\n${SIGNED}\n${hash('sha256', body)}`
    const scope = `${day}/${REGION}/dynamodb/aws4_request`
    const signature = createHmac('sha256', key)
      .update(`AWS4-HMAC-SHA256\n${stamp}\n${scope}\n${hash('sha256', canonical)}`)
      .digest('hex')
    return {
      'content-type': CONTENT_TYPE,
      'x-amz-date': stamp,
      'x-amz-target': target,
      authorization: `AWS4-HMAC-SHA256 Credential=${ACCESS_KEY}/${scope}, SignedHeaders=${SIGNED}, Signature=${signature}`,
    }
  }
}

function decode(value) {
  if (value.S !== undefined) return value.S
  if (value.N !== undefined) return Number(value.N)
  if (value.BOOL !== undefined) return value.BOOL
  if (value.L !== undefined) return value.L.map(decode)
  if (value.M !== undefined) return decodeItem(value.M)
  if (value.NULL !== undefined) return null
  throw new Error(`Not a value of this schema: ${Object.keys(value)}`)
}

function decodeItem(item) {
  const plain = {}
  for (const name in item) plain[name] = decode(item[name])
  return plain
}

/** Keys and values of this schema are all texts. */
function encodeTexts(texts) {
  const encoded = {}
  for (const name in texts) encoded[name] = { S: texts[name] }
  return encoded
}

/** Send by undici's dispatcher: its `request` creates a stream for each response, which costs a third more. */
function sent(pool, headers, body) {
  return new Promise((resolve, reject) => {
    let status
    const parts = []
    pool.dispatch(
      { method: 'POST', path: '/', headers, body },
      {
        onRequestStart() {},
        onResponseStart(_, statusCode) {
          status = statusCode
        },
        onResponseData(_, part) {
          parts.push(part)
        },
        onResponseEnd() {
          const text = parts.length === 1 ? parts[0].toString() : Buffer.concat(parts).toString()
          if (status === 200) resolve(JSON.parse(text))
          else reject(new Error(`The store answered ${status}: ${text}`))
        },
        onResponseError(_, error) {
          reject(error)
        },
      },
    )
  })
}

export function ownClient(endpoint) {
  const pool = new Pool(endpoint, { connections: CONNECTIONS, pipelining: 1 })
  const sign = signer(new URL(endpoint).host)

  const call = (operation, request) => {
    const text = JSON.stringify(request)
    return sent(pool, sign(`DynamoDB_20120810.${operation}`, text), text)
  }

  return {
    async get(TableName, key) {
      const request = { TableName, Key: encodeTexts(key), ReturnConsumedCapacity: 'TOTAL' }
      const answer = await call('GetItem', request)
      return answer.Item && decodeItem(answer.Item)
    },
    async batchGet(table, keys) {
      const request = { RequestItems: { [table]: { Keys: keys.map(encodeTexts) } }, ReturnConsumedCapacity: 'TOTAL' }
      const answer = await call('BatchGetItem', request)
      return {
        items: (answer.Responses?.[table] ?? []).map(decodeItem),
        unprocessed: (answer.UnprocessedKeys?.[table]?.Keys ?? []).map(decodeItem),
      }
    },
    async query(request) {
      const values = encodeTexts(request.ExpressionAttributeValues)
      const asked = { ...request, ExpressionAttributeValues: values, ReturnConsumedCapacity: 'TOTAL' }
      const answer = await call('Query', asked)
      return answer.Items.map(decodeItem)
    },
  }
}
