"""The kinds of resolvers: a field is resolved in the cheapest way that has the same result."""

from collections.abc import Callable, Mapping
from keyword import iskeyword
from typing import TYPE_CHECKING, Any, NamedTuple

from jit.field_plan import FieldPlan, Path

if TYPE_CHECKING:
    from jit.execution import Execution


class AttributeResolver(NamedTuple):
    """A resolver that reads an attribute of the object."""

    name: str


class IdentityResolver(NamedTuple):
    """A resolver that returns the parent object, such as the event of a subscription."""


class Batch(NamedTuple):
    """A function that resolves a field for many parents at once.

    `function(keys, info)` returns an awaitable of a sequence with the value of each key, or an exception. A key is the
    value of an attribute of parents, or a parent itself if `attribute` is None. The keys are different and not None.
    The arguments of the field follow by name: all parents of a field have the same.
    """

    function: Callable[..., Any]
    attribute: str | None


class DirectResolver(NamedTuple):
    """A resolver function that is called directly, with the parent object, `info` and the arguments by name."""

    function: Callable[..., Any]
    is_async: bool
    takes_self: bool
    #: The names of the parameters that receive the parent object.
    parents: tuple[str, ...]
    #: The name of the parameter that receives `info`.
    info: str | None
    info_class: Callable[["Execution", FieldPlan, Path], Any]
    #: Converts coerced arguments into `(keywords, reusable)`. Reusable keywords serve all calls of an execution.
    convert: Callable[["Execution", FieldPlan, Path, dict[str, Any]], tuple[dict[str, Any], bool]]
    #: The batch that resolves the field in eager execution, instead of the function.
    batch: Batch | None = None
    #: For a leaf without arguments, the attribute that has the value. If it is None, the function is called.
    preloaded: str | None = None


class RawResolver(NamedTuple):
    """A resolver function that takes the parent object, graphql-core's info and the arguments."""

    function: Callable[..., Any]


class DefaultResolver(NamedTuple):
    """The default resolver of graphql-core or of the executor."""


Resolver = AttributeResolver | IdentityResolver | DirectResolver | RawResolver | DefaultResolver


def default(run: "Execution", plan: FieldPlan, source: Any, path: Path) -> Any:
    """Resolve like `graphql.default_field_resolver`, but build `info` only if a function is called."""
    if run.field_resolver is not None:
        return run.field_resolver(source, run.info(plan, path), **_arguments(run, plan))
    arguments = _arguments(run, plan)
    value = source.get(plan.name) if isinstance(source, Mapping) else getattr(source, plan.name, None)
    return value(run.info(plan, path), **arguments) if callable(value) else value


def _arguments(run: "Execution", plan: FieldPlan) -> dict[str, Any]:
    return plan.arguments(run) if plan.takes_arguments else {}


def attribute(run: "Execution", plan: FieldPlan, source: Any, path: Path) -> Any:
    """Return the value of a field's attribute, or the result of its function if the attribute is None."""
    resolver: AttributeResolver | DirectResolver = plan.resolver
    if isinstance(resolver, AttributeResolver):
        return getattr(source, resolver.name)
    value = getattr(source, resolver.preloaded or "")
    if value is not None:
        return value
    positional = [source] if resolver.takes_self else []
    named = dict.fromkeys(resolver.parents, source)
    if resolver.info:
        named[resolver.info] = resolver.info_class(run, plan, path)
    return resolver.function(*positional, **named)


def keywords(run: "Execution", plan: FieldPlan, path: Path) -> dict[str, Any]:
    """Return the keyword arguments of a function that is called directly."""
    if plan in run.keywords:
        return run.keywords[plan]
    converted: dict[str, Any]
    converted, reusable = plan.resolver.convert(run, plan, path, plan.arguments(run))
    if reusable:
        run.keywords[plan] = converted
    return converted


def has_valid_names(resolver: Resolver) -> bool:
    """Return whether the names in a resolver mean the same in generated code.

    Python normalizes names that are not ASCII, and a name that is no identifier would be executed as code.
    """
    names: list[str | None] = []
    if isinstance(resolver, AttributeResolver):
        names = [resolver.name]
    elif isinstance(resolver, DirectResolver):
        names = [*resolver.parents, resolver.info, resolver.preloaded, resolver.batch and resolver.batch.attribute]
    return all(name.isascii() and name.isidentifier() and not iskeyword(name) for name in names if name is not None)


async def called_later(
    run: "Execution", plan: FieldPlan, path: Path, arguments: dict[str, Any], *positional: Any, **named: Any
) -> Any:
    """Call a coroutine function whose arguments are converted when the coroutine starts, as Strawberry does."""
    resolver: DirectResolver = plan.resolver
    converted, _ = resolver.convert(run, plan, path, arguments)
    return await resolver.function(*positional, **named, **converted)


def core_resolver_of(plan: FieldPlan) -> Resolver:
    """Return the resolver that graphql-core calls for a field."""
    return DefaultResolver() if plan.field.resolve is None else RawResolver(plan.field.resolve)
