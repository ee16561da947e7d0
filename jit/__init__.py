"""Operations compiled to Python: the answers and errors of graphql-core at a fraction of the time.

`CompiledExecutor` is given to graphql-core, `strawberry_fields.StrawberryExecutor` to a schema of Strawberry.
"""

from jit.executor import CachedOperation, CompiledExecutor, operation_of

__all__ = ["CachedOperation", "CompiledExecutor", "operation_of"]
