"""The server: GraphQL over HTTP, server-sent events and WebSocket, and what protects it.

`wiring.Edge` assembles it from its settings, `app` is the ASGI application, `uvicorn` runs it.
"""
