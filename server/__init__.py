"""The server: GraphQL over HTTP, server-sent events and WebSocket, with authentication, admission control and metrics.

`wiring.ServerComponents` creates its parts from the settings, `app` is the ASGI application, `uvicorn` runs it.
"""
