// Apollo Server, standalone.

import { ApolloServer } from '@apollo/server'
import { startStandaloneServer } from '@apollo/server/standalone'

import { schema } from './schema.js'
import { context, listenOn } from './settings.js'

const server = new ApolloServer({ schema, introspection: false })
await startStandaloneServer(server, { listen: listenOn, context: async () => context() })
