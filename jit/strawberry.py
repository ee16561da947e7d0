"""Resolvers of a Strawberry schema, called without Strawberry's wrappers.

Fields with extensions, permissions or exception handlers keep their wrappers.
"""

from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any

from graphql import GraphQLObjectType, GraphQLResolveInfo, GraphQLSchema, OperationDefinitionNode
from strawberry.execution import optimized_is_awaitable
from strawberry.relay.types import GlobalID
from strawberry.scalars import is_scalar
from strawberry.schema.schema import StrawberryGraphQLCoreExecutionContext
from strawberry.types.arguments import convert_arguments
from strawberry.types.base import StrawberryList, StrawberryMaybe, StrawberryOptional
from strawberry.types.enum import StrawberryEnumDefinition, has_enum_definition
from strawberry.types.field import StrawberryField
from strawberry.types.fields.resolver import StrawberryResolver
from strawberry.types.info import Info

from jit.execution import Execution
from jit.executor import CompiledExecutor
from jit.field_plan import IMMUTABLE, SCALARS, FieldPlan, Path
from jit.field_resolvers import AttributeResolver, Batch, DirectResolver, IdentityResolver, Resolver, core_resolver_of

__all__ = ["BATCH", "PRELOADED", "DirectInfo", "StrawberryExecutor"]

# Keys in the metadata of a field: see `field_resolvers.DirectResolver`.
BATCH, PRELOADED = "batch", "preloaded"
# The module and the qualified name of Strawberry's own resolvers.
CONVERTER, CREATED_IN = "strawberry.schema.schema_converter", "from_resolver.<locals>"


class StrawberryExecutor(CompiledExecutor, StrawberryGraphQLCoreExecutionContext):
    """The `execution_context_class` of a Strawberry schema."""

    awaitable_predicates = (*CompiledExecutor.awaitable_predicates, optimized_is_awaitable)

    @classmethod
    def resolver_of(cls, plan: FieldPlan) -> Resolver:
        """Return the resolver of a field."""
        direct = _direct(plan)
        return core_resolver_of(plan) if direct is None else direct  # an `IdentityResolver` is an empty tuple


class DirectInfo(Info[Any, Any]):
    """Strawberry's info. It builds graphql-core's info when a resolver first needs it."""

    _raw: GraphQLResolveInfo[Any] | None = None
    context: Any = None  # replaces the property of `Info`

    def __init__(self, run: Execution, plan: FieldPlan, path: Path) -> None:
        self.run = run
        self.plan = plan
        self.context = run.context
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
    def root_value(self) -> Any:
        return self.run.root

    @property
    def field_name(self) -> str:
        return self.plan.name

    @property
    def parent_type(self) -> GraphQLObjectType:
        """The type that has the field."""
        return self.plan.parent_type

    @property
    def arguments(self) -> dict[str, Any]:
        """The coerced arguments of the field, by their names in the schema. They must not be changed."""
        return self.plan.arguments(self.run) if self.plan.takes_arguments else {}

    @property
    def notes(self) -> dict[Any, Any] | None:
        """A cache that resolvers may use for this field. It lives as long as the compiled operation.

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
        return IdentityResolver()
    if not _is_untouched(plan, field):
        return None
    resolver = field.base_resolver
    if resolver is None:
        return AttributeResolver(field.python_name) if field.default_resolver is getattr else None
    function = resolver.wrapped_func
    if not callable(function):
        return None
    if resolver.info_parameter is not None and _strawberry_schema(plan.schema).config.info_class is not Info:
        return None
    parents = [each.name for each in (resolver.parent_parameter, resolver.root_parameter) if each is not None]
    info, batch = resolver.info_parameter, field.metadata.get(BATCH)
    return DirectResolver(
        function,
        iscoroutinefunction(function),
        resolver.self_parameter is not None,
        tuple(dict.fromkeys(parents)),  # one parameter may be both
        info.name if info is not None else None,
        DirectInfo,
        _Arguments(field),
        batch and Batch(*batch),
        field.metadata.get(PRELOADED),
    )


def _is_untouched(plan: FieldPlan, field: StrawberryField) -> bool:
    """Return whether the resolver is Strawberry's own, and does nothing but call the function or read the attribute."""
    resolve: Callable[..., Any] | None = plan.field.resolve
    overridden = type(field).get_result is not StrawberryField.get_result or "get_result" in vars(field)
    if overridden:
        return False
    if field.base_resolver is not None and type(field.base_resolver).__call__ is not StrawberryResolver.__call__:
        return False
    if resolve is None or resolve.__module__ != CONVERTER or CREATED_IN not in resolve.__qualname__ or field.extensions:
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
            names = self._names = self._unconverted_names(_strawberry_schema(plan.schema))
        reusable = True
        if names:
            converted = {}
            for name, value in arguments.items():
                # A resolver may change a list.
                converted[names[name]] = [*value] if value.__class__ is list else value
                if value.__class__ not in SCALARS and not isinstance(value, IMMUTABLE):
                    reusable = False
            return converted, reusable
        schema = _strawberry_schema(plan.schema)
        registry = schema.schema_converter.scalar_registry
        info = DirectInfo(run, plan, path)
        converted = convert_arguments(arguments, self._field.arguments, registry, schema.config, info)
        for value in converted.values():
            if not isinstance(value, IMMUTABLE):
                reusable = False
        return converted, reusable

    def _unconverted_names(self, schema: Any) -> dict[str, str]:
        """Return the parameter of each argument, or an empty dict if an argument needs conversion."""
        arguments, registry = self._field.arguments, schema.schema_converter.scalar_registry
        if not all(_is_plain(argument.type, registry) for argument in arguments):
            return {}
        from_argument = schema.config.name_converter.from_argument
        return {from_argument(argument): argument.python_name for argument in arguments}


def _strawberry_schema(schema: GraphQLSchema) -> Any:
    return schema._strawberry_schema  # type: ignore[attr-defined]


def _is_plain(kind: Any, registry: Any, *, in_list: bool = False) -> bool:
    """Return whether the values of an argument need no conversion, apart from copies of lists."""
    if isinstance(kind, StrawberryOptional):
        return not isinstance(kind, StrawberryMaybe) and _is_plain(kind.of_type, registry, in_list=in_list)
    if isinstance(kind, StrawberryList):
        return not in_list and _is_plain(kind.of_type, registry, in_list=True)
    return kind is not GlobalID and (
        is_scalar(kind, registry) or isinstance(kind, StrawberryEnumDefinition) or has_enum_definition(kind)
    )
