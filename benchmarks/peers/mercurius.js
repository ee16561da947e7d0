// Mercurius on Fastify, with its graphql-jit.

import Fastify from 'fastify'
import mercurius from 'mercurius'

import { schema } from './schema.js'
import { context, listenOn } from './settings.js'

const app = Fastify({ logger: false })
await app.register(mercurius, { schema, context, jit: 1, graphiql: false })
await app.listen(listenOn)
