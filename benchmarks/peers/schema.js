// The executable schema of all servers in this folder. The context of a request is { store }.

import { readFileSync } from 'node:fs'

import { makeExecutableSchema } from '@graphql-tools/schema'
import { GraphQLScalarType } from 'graphql'

import { listing } from './cursors.js'

const DEFAULT_PAGE = 25
const secret = process.env.GATEWAY_SECRET

const postsByAuthor = listing(secret, ['GSI1PK', 'GSI1SK', 'PK', 'SK'], 'FEED-002 Query.postsByAuthor')
const homeFeed = listing(secret, ['GSI3PK', 'GSI3SK', 'PK', 'SK'], 'FEED-003 Query.homeFeed')

/** Return a page of a list that was read with one item more than `first`. */
function connection(items, first, cursor) {
  return { items: items.slice(0, first), hasNextPage: items.length > first, cursor }
}

const connectionFields = {
  edges: ({ items, cursor }) => items.map((node) => ({ node, cursor })),
  pageInfo: (page) => page,
}

const edgeFields = { cursor: ({ node, cursor }) => cursor(node) }

const lastPart = (key) => key.slice(key.lastIndexOf('#') + 1)

// The index of an author's posts has the author only in its key.
const authorOf = (post) => post.author_id ?? lastPart(post.GSI1PK)

const resolvers = {
  // Stored in UTC with milliseconds and a Z. Responses have an offset, and a fraction unless it is 0.
  DateTime: new GraphQLScalarType({
    name: 'DateTime',
    serialize: (stored) =>
      stored.endsWith('.000Z') ? `${stored.slice(0, -5)}+00:00` : `${stored.slice(0, -1)}000+00:00`,
  }),
  Visibility: { PUBLIC: 'public', FOLLOWERS: 'followers', PRIVATE: 'private' },
  MatchPhase: {
    UPCOMING: 'upcoming',
    LIVE: 'live',
    BREAK: 'break',
    STUMPS: 'stumps',
    INTERRUPTED: 'interrupted',
    FINISHED: 'finished',
    ABANDONED: 'abandoned',
    CANCELLED: 'cancelled',
    POSTPONED: 'postponed',
    UNKNOWN: 'unknown',
  },
  Query: {
    post: (_, { id }, { store }) => store.posts.load(id),
    postsByAuthor: async (_, { authorId, first }, { store }) => {
      const size = first ?? DEFAULT_PAGE
      return connection(await store.postsByAuthor(authorId, size), size, postsByAuthor({ authorId }))
    },
    homeFeed: async (_, { userId, first }, { store }) => {
      const size = first ?? DEFAULT_PAGE
      return connection(await store.homeFeed(userId, size), size, homeFeed({ userId }))
    },
    matches: (_, { ids }, { store }) => store.matches.loadMany(ids),
  },
  PostConnection: connectionFields,
  FeedEntryConnection: connectionFields,
  PostEdge: edgeFields,
  FeedEntryEdge: edgeFields,
  PageInfo: {
    hasPreviousPage: () => false,
    startCursor: ({ items, cursor }) => (items.length > 0 ? cursor(items[0]) : null),
    endCursor: ({ items, cursor }) => (items.length > 0 ? cursor(items[items.length - 1]) : null),
  },
  User: {
    userId: (user) => lastPart(user.PK),
    avatarRef: (user) => user.avatar_ref,
  },
  Post: {
    postId: (post) => lastPart(post.PK),
    authorId: authorOf,
    createdAt: (post) => post.created_at ?? post.GSI1SK.slice(0, post.GSI1SK.indexOf('#')),
    mediaRef: (post) => post.media_ref,
    tags: (post) => post.tags ?? [],
    likeCount: (post) => Math.max(0, post.likes ?? 0),
    commentCount: (post) => Math.max(0, post.comments ?? 0),
    author: (post, _, { store }) => store.users.load(authorOf(post)),
    comments: async (post, { first }, { store }) => {
      const size = first ?? DEFAULT_PAGE
      const comments = await store.comments.load({ postId: lastPart(post.PK), first: size })
      return { nodes: comments.slice(0, size) }
    },
  },
  Comment: {
    commentId: (comment) => lastPart(comment.SK),
    createdAt: (comment) => comment.created_at,
    author: (comment, _, { store }) => store.users.load(comment.user_id),
  },
  FeedEntry: {
    postId: (entry) => lastPart(entry.SK),
    createdAt: (entry) => entry.SK.slice(0, entry.SK.indexOf('#')),
    post: (entry, _, { store }) => store.posts.load(lastPart(entry.SK)),
  },
  Match: {
    homeTeam: (match, _, { store }) => store.teams.load(match.homeTeamId),
    awayTeam: (match, _, { store }) => store.teams.load(match.awayTeamId),
  },
}

export const schema = makeExecutableSchema({
  typeDefs: readFileSync(new URL('schema.graphql', import.meta.url), 'utf8'),
  resolvers,
})
