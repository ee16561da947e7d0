"""Compiled GraphQL operations: the results and errors of graphql-core, in a fraction of the time.

`CompiledExecutor` is an executor class for graphql-core, and `jit.strawberry.StrawberryExecutor` one for Strawberry.
"""

from jit.cache import CachedOperation, CacheStatistics, OperationCache, cache_of, operation_of
from jit.collect_fields import Reason
from jit.executor import CompiledExecutor

__all__ = [
    "CacheStatistics",
    "CachedOperation",
    "CompiledExecutor",
    "OperationCache",
    "Reason",
    "cache_of",
    "operation_of",
]
