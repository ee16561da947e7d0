"""The identity of callers: JSON Web Tokens, their keys, the origins of pages, and strict JSON.

The package imports nothing of `server.http`, where the middleware for CORS, CSRF and response headers is.
"""
