"""GraphQL over HTTP, as whole answers and as server-sent events, and what protects it."""
