"""Resolvers of a Strawberry schema, called without Strawberry's wrappers.

Fields with extensions, permissions or exception handlers keep their wrappers.
"""

from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any

from graphql import GraphQLResolveInfo, OperationDefinitionNode
from strawberry.relay.types import GlobalID
from strawberry.scalars import is_scalar
from strawberry.schema.schema import StrawberryGraphQLCoreExecutionContext
from strawberry.types.arguments import convert_arguments
from strawberry.types.base import StrawberryMaybe, StrawberryOptional
from strawberry.types.enum import StrawberryEnumDefinition, has_enum_definition
from strawberry.types.field import StrawberryField
from strawberry.types.info import Info

from jit.execution import Execution
from jit.executor import CompiledExecutor
from jit.field_plan import UNCHANGING, FieldPlan
from jit.field_resolvers import AttributeResolver, Direct, Itself, Resolver, of_field
from jit.paths import Path

# Keys in the metadata of a field: see `field_resolvers.Direct`.
SAME_FOR, AT_HAND = "same_for", "at_hand"
CONVERTER, MADE_IN = "strawberry.schema.schema_converter", "from_resolver.<locals>"


class StrawberryExecutor(CompiledExecutor, StrawberryGraphQLCoreExecutionContext):
    """The `execution_context_class` of a Strawberry schema."""

    @classmethod
    def resolver_of(cls, plan: FieldPlan) -> Resolver:
        """Return the resolver of a field."""
        return _direct(plan) or of_field(plan)


class DirectInfo(Info[Any, Any]):
    """Strawberry's info, which builds graphql-core's info at first use."""

    _raw: GraphQLResolveInfo[Any] | None = None

    def __init__(self, run: Execution, plan: FieldPlan, path: Path) -> None:
        self.run = run
        self.plan = plan
        self._path = path

    @property
    def _raw_info(self) -> GraphQLResolveInfo[Any]:  # type: ignore[override]
        if self._raw is None:
            self._raw = self.run.info(self.plan, self._path)
        return self._raw

    @property
    def _field(self) -> StrawberryField:  # type: ignore[override]
        field: StrawberryField = self.plan.field.extensions["strawberry-definition"]
        return field

    @property
    def context(self) -> Any:
        return self.run.context

    @property
    def root_value(self) -> Any:
        return self.run.root

    @property
    def field_name(self) -> str:
        return self.plan.name

    @property
    def notes(self) -> dict[Any, Any] | None:
        """A cache of resolvers for this field, with the lifetime of the compiled operation.

        None if variables decide which nodes select the field.
        """
        return self.plan.notes

    @property
    def operation(self) -> OperationDefinitionNode:
        return self.run.program.operation


def _direct(plan: FieldPlan) -> Resolver | None:
    field = plan.field.extensions.get("strawberry-definition")
    if not isinstance(field, StrawberryField):
        return None
    if field.is_subscription:
        return Itself()
    if not _is_untouched(plan, field):
        return None
    resolver = field.base_resolver
    if resolver is None:
        return AttributeResolver(field.python_name) if field.default_resolver is getattr else None
    function = resolver.wrapped_func
    if not callable(function):
        return None
    named = [resolver.parent_parameter, resolver.root_parameter]
    info = resolver.info_parameter
    return Direct(
        function,
        iscoroutinefunction(function),
        resolver.self_parameter is not None,
        tuple(parameter.name for parameter in named if parameter is not None),
        info.name if info is not None else None,
        DirectInfo,
        _Arguments(field),
        field.metadata.get(SAME_FOR),
        field.metadata.get(AT_HAND),
    )


def _is_untouched(plan: FieldPlan, field: StrawberryField) -> bool:
    """Return whether the resolver is Strawberry's own, without extensions around its function."""
    resolve: Callable[..., Any] | None = plan.field.resolve
    if resolve is None or resolve.__module__ != CONVERTER or MADE_IN not in resolve.__qualname__ or field.extensions:
        return False
    closure = dict(zip(resolve.__code__.co_freevars, resolve.__closure__ or (), strict=True))
    handlers = closure.get("field_exception_handlers")
    return handlers is None or not handlers.cell_contents


class _Arguments:
    """The conversion of coerced arguments into the parameters of a field's function."""

    def __init__(self, field: StrawberryField) -> None:
        self._field = field
        self._names: dict[str, str] | None = None

    def __call__(
        self, run: Execution, plan: FieldPlan, path: Path, arguments: dict[str, Any]
    ) -> tuple[dict[str, Any], bool]:
        names = self._names
        if names is None:
            names = self._names = self._given_as_they_are(_strawberry_schema(run))
        if names:
            found = {names[name]: value for name, value in arguments.items()}
        else:
            schema = _strawberry_schema(run)
            registry = schema.schema_converter.scalar_registry
            info = DirectInfo(run, plan, path)
            found = convert_arguments(arguments, self._field.arguments, registry, schema.config, info)
        for value in found.values():
            if not isinstance(value, UNCHANGING):
                return found, False
        return found, True

    def _given_as_they_are(self, schema: Any) -> dict[str, str]:
        """Return the function's names of its arguments if none needs conversion, otherwise an empty dict."""
        arguments, registry = self._field.arguments, schema.schema_converter.scalar_registry
        if not all(_is_plain(argument.type, registry) for argument in arguments):
            return {}
        return {schema.config.name_converter.from_argument(one): one.python_name for one in arguments}


def _strawberry_schema(run: Execution) -> Any:
    return run.program.schema._strawberry_schema  # type: ignore[attr-defined]


def _is_plain(kind: Any, registry: Any) -> bool:
    if isinstance(kind, StrawberryOptional):
        return not isinstance(kind, StrawberryMaybe) and _is_plain(kind.of_type, registry)
    return kind is not GlobalID and (
        is_scalar(kind, registry) or isinstance(kind, StrawberryEnumDefinition) or has_enum_definition(kind)
    )
