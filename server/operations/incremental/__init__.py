"""Incremental delivery of operations with `@defer` and `@stream`.

`executor` executes them with graphql-core, `delivery` has the formats of their payloads, and `runner` does both within
one admission, deadline, bill and report.
"""
