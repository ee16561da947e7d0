"""Streamed responses to HTTP requests.

`response_stream` sends the results of an operation, heartbeats and the end of the stream. `sse` and `multipart` are the
formats that clients choose with `Accept`.
"""
