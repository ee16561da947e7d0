"""How fields are resolved: in the cheapest way that does the same."""

from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from jit.field_plan import FieldPlan
from jit.paths import Path

if TYPE_CHECKING:
    from jit.execution import Execution


class AttributeResolver(NamedTuple):
    """By nothing but an attribute of the object."""

    name: str


class Itself(NamedTuple):
    """Not at all: the object is the value already, as the events of a subscription are."""


class Direct(NamedTuple):
    """By a function that is given what it asks for by name: the object, `info` and the arguments.

    `convert(run, plan, path, arguments)` makes of coerced arguments what the function takes, as `(keywords, lasting)`;
    what is `lasting` may be given to each call of an execution. `same_for` is a group of fields and an attribute: where
    that is equal, all fields of the group are resolved alike, so that one call does for them all. `at_hand` is an
    attribute that has the answer unless it is None; it goes with leaves that take no arguments.
    """

    function: Callable[..., Any]
    is_async: bool
    takes_self: bool
    parents: tuple[str, ...]
    info: str | None
    info_class: Callable[["Execution", FieldPlan, Path], Any]
    convert: Callable[["Execution", FieldPlan, Path, dict[str, Any]], tuple[dict[str, Any], bool]]
    same_for: tuple[Hashable, str] | None = None
    at_hand: str | None = None


class Raw(NamedTuple):
    """By a function that takes the object, graphql-core's info, and the arguments."""

    function: Callable[..., Any]


class Default(NamedTuple):
    """By graphql-core's default, or the executor's own."""


Resolver = AttributeResolver | Itself | Direct | Raw | Default


def default(run: "Execution", plan: FieldPlan, source: Any, path: Path) -> Any:
    """As `graphql.default_field_resolver`, with `info` for those alone who are called."""
    if run.field_resolver is not None:
        return run.field_resolver(source, run.info(plan, path), **_arguments(run, plan))
    arguments = _arguments(run, plan)
    value = source.get(plan.name) if isinstance(source, Mapping) else getattr(source, plan.name, None)
    return value(run.info(plan, path), **arguments) if callable(value) else value


def _arguments(run: "Execution", plan: FieldPlan) -> dict[str, Any]:
    return plan.arguments(run) if plan.takes_arguments else {}


def attribute(run: "Execution", plan: FieldPlan, source: Any, path: Path) -> Any:
    """What an object has for a field that it may have at hand."""
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
    """The arguments for a function that is called directly."""
    known: dict[str, Any] | None = run.keywords.get(plan)
    if known is not None:
        return known
    found: dict[str, Any]
    found, lasting = plan.resolver.convert(run, plan, path, plan.arguments(run))
    if lasting:
        run.keywords[plan] = found
    return found


def of_field(plan: FieldPlan) -> Resolver:
    """How a field of a plain schema is resolved."""
    return Default() if plan.field.resolve is None else Raw(plan.field.resolve)
