"""GraphQL over HTTP: whole responses, server-sent events, and protection against requests of other sites."""
