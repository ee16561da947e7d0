// The reads of the resolvers, on DynamoDB clients that return plain items. Each request has an instance.

import DataLoader from 'dataloader'

const FEED = 'feed'
const BATCH_KEYS = 100
// A feed's first page begins with its sources. The Query allows for this number of them.
const SOURCES_EXPECTED = 8

/** Return a dataloader by `idOf`. It reads one key by GetItem, and several by BatchGetItem until all are processed. */
function itemLoader(client, table, keyOf, idOf) {
  return new DataLoader(
    async (ids) => {
      if (ids.length === 1) return [(await client.get(table, keyOf(ids[0]))) ?? null]
      const found = new Map()
      let keys = ids.map(keyOf)
      while (keys.length > 0) {
        const answer = await client.batchGet(table, keys)
        for (const item of answer.items) found.set(idOf(item), item)
        keys = answer.unprocessed
      }
      return ids.map((id) => found.get(id) ?? null)
    },
    { maxBatchSize: BATCH_KEYS },
  )
}

const lastPart = (key) => key.slice(key.lastIndexOf('#') + 1)

export class Store {
  constructor(client) {
    this.client = client
    this.users = itemLoader(
      client,
      FEED,
      (id) => ({ PK: `USER#${id}`, SK: 'META' }),
      (item) => lastPart(item.PK),
    )
    this.posts = itemLoader(
      client,
      FEED,
      (id) => ({ PK: `POST#${id}`, SK: 'META' }),
      (item) => lastPart(item.PK),
    )
    this.matches = itemLoader(
      client,
      'cricket-fixtures',
      (id) => ({ matchId: id }),
      (item) => item.matchId,
    )
    this.teams = itemLoader(
      client,
      'cricket-teams',
      (id) => ({ teamId: id }),
      (item) => item.teamId,
    )
    // All lists of a page arrive together, so that their users are read in one batch.
    this.comments = new DataLoader((lists) => Promise.all(lists.map((list) => this.#commentsOn(list))), {
      cacheKeyFn: ({ postId, first }) => `${first} ${postId}`,
    })
  }

  /** Return `first` posts of an author and one more, newest first. */
  async postsByAuthor(authorId, first) {
    return this.client.query({
      TableName: FEED,
      IndexName: 'GSI1',
      KeyConditionExpression: 'GSI1PK = :partition',
      FilterExpression: 'visibility <> :private',
      ExpressionAttributeValues: { ':partition': `USER#${authorId}`, ':private': 'private' },
      ScanIndexForward: false,
      Limit: first + 1,
    })
  }

  /** Return `first` entries of a user's feed and one more, newest first. */
  async homeFeed(userId, first) {
    const items = await this.client.query({
      TableName: FEED,
      IndexName: 'GSI3',
      KeyConditionExpression: 'GSI3PK = :partition',
      ExpressionAttributeValues: { ':partition': `FEED#${userId}` },
      ScanIndexForward: false,
      Limit: first + 1 + SOURCES_EXPECTED,
    })
    return items.filter((item) => !item.SK.startsWith('SOURCE#')).slice(0, first + 1)
  }

  #commentsOn({ postId, first }) {
    return this.client.query({
      TableName: FEED,
      KeyConditionExpression: 'PK = :partition AND begins_with(SK, :prefix)',
      ExpressionAttributeValues: { ':partition': `POST#${postId}`, ':prefix': 'COMMENT#' },
      ScanIndexForward: true,
      Limit: first + 1,
    })
  }
}
