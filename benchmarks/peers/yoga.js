// GraphQL Yoga on Node's HTTP server, with graphql-jit.

import { createServer } from 'node:http'

import { useGraphQlJit } from '@envelop/graphql-jit'
import { createYoga } from 'graphql-yoga'

import { schema } from './schema.js'
import { context, listenOn } from './settings.js'

const yoga = createYoga({ schema, context, plugins: [useGraphQlJit()], logging: false, graphiql: false, cors: false })
createServer(yoga).listen(listenOn)
