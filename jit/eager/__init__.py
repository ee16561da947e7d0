"""Eager execution: coroutines start where graphql-core creates them, and are driven without tasks.

`CompiledExecutor.eager` chooses it. docs/execution.md lists the differences from graphql-core.
"""
