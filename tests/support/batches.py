"""Fields of Strawberry schemas that are resolved in batches."""

from collections.abc import Awaitable, Callable, Sequence
from inspect import Signature, signature
from typing import Any

import strawberry

from jit.strawberry import BATCH

BatchFunction = Callable[..., Awaitable[Sequence[Any]]]


def batch_field(function: BatchFunction, kind: Any, attribute: str | None) -> Any:
    """Return a field that has the same result without its batch. Its arguments are those after `keys` and `info`."""

    async def resolve_one(parent: strawberry.Parent[Any], info: strawberry.Info, **arguments: Any) -> Any:
        key = parent if attribute is None else getattr(parent, attribute)
        return None if key is None else (await function([key], info, **arguments))[0]

    own, declared = signature(resolve_one).parameters, signature(function).parameters
    resolve_one.__signature__ = Signature([*own.values()][:2] + [*declared.values()][2:])  # type: ignore[attr-defined]
    return strawberry.field(resolver=resolve_one, graphql_type=kind, metadata={BATCH: (function, attribute)})
