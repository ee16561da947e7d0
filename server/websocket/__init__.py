"""GraphQL over WebSocket: the protocol graphql-transport-ws."""
