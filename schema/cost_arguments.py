"""The check that the estimated cost of a field takes the arguments of its filters and conditions into account."""

from collections.abc import Callable
from datetime import UTC, datetime
from inspect import Parameter, signature
from typing import Any

from strawberry.utils.str_converters import to_camel_case

from datastore.model.access_patterns import AccessPattern, Extent, values_in

# The parameters of a resolver that are no arguments, and the arguments that every estimate takes into account.
PARAMETERS = frozenset({"info", "parent"})
ALWAYS_KNOWN = frozenset({"first", "after", "last", "before", "order", "consistent"})
# The time at which an estimate is made to find the arguments that it reads.
ANY_TIME = datetime(2000, 1, 1, tzinfo=UTC)


class ReadArguments(dict[str, Any]):
    """Arguments without values, which record the names that are read."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.names.add(name)
        return default

    def __missing__(self, name: str) -> None:
        self.names.add(name)

    def __contains__(self, name: object) -> bool:
        self.names.add(str(name))
        return False


def check_cost_arguments(
    patterns: tuple[AccessPattern, ...], resolver: Callable[..., Any], extent: Extent, *, name: str
) -> None:
    """Raise `ValueError`, which names the argument, if a field's cost ignores an argument of a filter or condition."""
    unknown = arguments_of_expressions(patterns, resolver) - known_arguments(extent) - extent.ignores.keys()
    if unknown:
        argument = min(unknown)
        model = f" and its cost model `{extent.model}` in resolvers/" if extent.model else ""
        raise ValueError(
            f"The cost of the field with the resolver `{name}` ({patterns[0].id}) ignores `{argument}`, an argument of "
            f"its filter or condition. Let a function of its `Extent` in the package `schema`{model} read the "
            "argument, or, if it does not raise the cost, state there why: "
            f"Extent(ignores={{{argument!r}: 'The reason.'}})."
        )


def arguments_of_expressions(patterns: tuple[AccessPattern, ...], resolver: Callable[..., Any]) -> set[str]:
    """Return the arguments that the expressions name, and the optional ones of a field whose pattern has a filter."""
    parameters = signature(resolver).parameters.values()
    arguments = {_argument(each): each.default is not Parameter.empty for each in parameters}
    arguments = {name: optional for name, optional in arguments.items() if name not in PARAMETERS | ALWAYS_KNOWN}
    named: set[str] = set()
    for pattern in patterns:
        named |= values_in(*pattern.filter, pattern.condition, *pattern.guard)
    has_filter = any(pattern.filter for pattern in patterns)
    return {name for name, optional in arguments.items() if name in named or (optional and has_filter)}


def known_arguments(extent: Extent) -> set[str]:
    """Return the arguments that the functions of an extent read."""
    read = ReadArguments()
    for with_time in (extent.size, extent.partitions):
        if callable(with_time):
            with_time(read, ANY_TIME)
    for function in (extent.scanned, extent.written):
        if callable(function):
            function(read)
    return read.names | ({extent.size} if isinstance(extent.size, str) else set())


def _argument(parameter: Parameter) -> str:
    return to_camel_case(parameter.name.rstrip("_"))
