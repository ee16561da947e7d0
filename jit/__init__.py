"""Compiled GraphQL operations: the results and errors of graphql-core, in a fraction of the time.

`CompiledExecutor` is an executor class for graphql-core, and `jit.strawberry.StrawberryExecutor` one for Strawberry.
"""

from jit.executor import CachedOperation, CompiledExecutor, operation_of

__all__ = ["CachedOperation", "CompiledExecutor", "operation_of"]
