"""Resolvers of fields, in the cheapest form with the same result."""

from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from jit.field_plan import FieldPlan
from jit.paths import Path

if TYPE_CHECKING:
    from jit.execution import Execution


class AttributeResolver(NamedTuple):
    """A resolver that reads an attribute of the object."""

    name: str


class Itself(NamedTuple):
    """A resolver that returns the object, such as the event of a subscription."""


class Direct(NamedTuple):
    """A resolver function that is called directly, with the object, `info` and the arguments by name."""

    function: Callable[..., Any]
    is_async: bool
    takes_self: bool
    #: The names of the parameters that receive the object.
    parents: tuple[str, ...]
    #: The name of the parameter that receives `info`.
    info: str | None
    info_class: Callable[["Execution", FieldPlan, Path], Any]
    #: Converts coerced arguments into `(keywords, reusable)`; reusable keywords serve all calls of an execution.
    convert: Callable[["Execution", FieldPlan, Path, dict[str, Any]], tuple[dict[str, Any], bool]]
    #: A group of fields, and an attribute: one call serves all fields of the group with an equal attribute.
    same_for: tuple[Hashable, str] | None = None
    #: An attribute that has the value unless it is None, for leaves without arguments.
    at_hand: str | None = None


class Raw(NamedTuple):
    """A resolver function that takes the object, graphql-core's info, and the arguments."""

    function: Callable[..., Any]


class Default(NamedTuple):
    """graphql-core's default resolver, or the one of the executor."""


Resolver = AttributeResolver | Itself | Direct | Raw | Default


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
    """Return the attribute of a field, or the result of its function if the attribute is None."""
    resolver: AttributeResolver | Direct = plan.resolver
    if isinstance(resolver, AttributeResolver):
        return getattr(source, resolver.name)
    value = getattr(source, resolver.at_hand or "")
    if value is not None:
        return value
    given = [source] if resolver.takes_self else []
    named = dict.fromkeys(resolver.parents, source)
    if resolver.info:
        named[resolver.info] = resolver.info_class(run, plan, path)
    return resolver.function(*given, **named)


def keywords(run: "Execution", plan: FieldPlan, path: Path) -> dict[str, Any]:
    """Return the keyword arguments of a function that is called directly."""
    known: dict[str, Any] | None = run.keywords.get(plan)
    if known is not None:
        return known
    found: dict[str, Any]
    found, lasting = plan.resolver.convert(run, plan, path, plan.arguments(run))
    if lasting:
        run.keywords[plan] = found
    return found


def of_field(plan: FieldPlan) -> Resolver:
    """Return the resolver of a field of a schema of graphql-core."""
    return Default() if plan.field.resolve is None else Raw(plan.field.resolve)
