"""Compiled operations: an operation is compiled once, and executed repeatedly."""

from collections.abc import Callable, Coroutine, Hashable
from functools import partial
from operator import attrgetter
from typing import Any

from graphql import (
    ExecutionResult,
    FragmentDefinitionNode,
    GraphQLField,
    GraphQLObjectType,
    GraphQLSchema,
    OperationDefinitionNode,
    OperationType,
)
from graphql.execution import Executor
from graphql.type.directives import GraphQLDisableErrorPropagationDirective

from jit import codegen, collect_fields
from jit.collect_fields import ALWAYS, Reason, Unsupported
from jit.eager.execution import EagerExecution, run_in_task
from jit.execution import Execution
from jit.field_plan import FieldPlan, Select
from jit.field_resolvers import AttributeResolver, DirectResolver, Resolver, core_resolver_of, has_valid_names
from jit.variables import CommonVariables

# A field takes some 2.5 KB, and up to 0.07 ms to compile, in which graphql-core would execute it a few times. Compiling
# blocks the event loop.
MAX_FIELDS = 300

ResolverOf = Callable[[FieldPlan], Resolver]
_RESOLVE = attrgetter("resolve")
Fragments = dict[str, FragmentDefinitionNode]


class CompiledOperation:
    """An operation of a validated document, compiled for a schema. Raises `Unsupported` if it cannot be compiled.

    `resolver_of` returns the resolver of a field. `types_by_class`: the class of a value decides whether it has an
    object type, so that one check serves all values of a class. `eager`: see `jit.eager`.
    """

    def __init__(
        self,
        schema: GraphQLSchema,
        fragments: Fragments,
        operation: OperationDefinitionNode,
        resolver_of: ResolverOf,
        *,
        types_by_class: bool = False,
        eager: bool = False,
    ) -> None:
        self.schema = schema
        self.fragments = fragments
        self.operation = operation
        self.types_by_class = types_by_class
        self.eager = eager
        self._execution = EagerExecution if eager else Execution
        self._resolver_of = resolver_of
        survey = collect_fields.Survey(schema, operation, fragments)
        if survey.fields > MAX_FIELDS:
            raise Unsupported(Reason.TOO_MANY_FIELDS)
        self.fields = survey.fields
        self._conditional = survey.conditional
        self._variables = CommonVariables(schema, operation)
        self._shapes: dict[Hashable, object] = {}
        self._fields: list[GraphQLField] = []
        #: Runs an execution in the current task. None unless the only root field is a coroutine, in eager execution.
        self.run_in_task: Callable[[Any], Coroutine[Any, Any, ExecutionResult]] | None = None
        #: The function of the root, or for a mutation a function for each field.
        self.roots = self._compile_roots()
        self._resolves = [field.resolve for field in self._fields]

    def is_outdated(self) -> bool:
        """Return whether the resolver of a field was replaced after it was compiled."""
        return self._resolves != [*map(_RESOLVE, self._fields)]

    # Compiling

    def _compile_roots(self) -> list[Select]:
        """Compile the function of the root, or for a mutation a function for each field."""
        operation = self.operation
        disabling = GraphQLDisableErrorPropagationDirective.name
        if any(directive.name.value == disabling for directive in operation.directives or ()):
            raise Unsupported(Reason.ERROR_PROPAGATION)
        root = self.schema.get_root_type(operation.operation)
        if root is None:
            raise Unsupported(Reason.NO_ROOT)
        fields = collect_fields.collect(self.schema, self.fragments, root, [(operation.selection_set, ALWAYS)])
        plans = self._plans(None, root, fields)
        in_order = collect_fields.is_ordered(fields)
        if not in_order and operation.operation is OperationType.MUTATION:
            raise Unsupported(Reason.MUTATION_ORDER)
        if not in_order and not self.eager:
            raise Unsupported(Reason.FIELD_ORDER)
        groups = [[plan] for plan in plans] if operation.operation is OperationType.MUTATION else [plans]
        roots = [codegen.selection(group, in_order=in_order, eager=self.eager) for group in groups]
        if self.eager and len(plans) == 1 and _is_coroutine(plans[0]):
            self.run_in_task = partial(run_in_task, plans[0], codegen.resolution(plans[0]))
        return roots

    def _compile_selection(self, plan: FieldPlan, object_type: GraphQLObjectType) -> None:
        """Compile the function that completes objects of a type of the field's value."""
        below = [(node.selection_set, condition) for node, condition, _ in plan.occurrences if node.selection_set]
        fields = collect_fields.collect(self.schema, self.fragments, object_type, below)
        plans = self._plans(plan, object_type, fields)
        in_order = collect_fields.is_ordered(fields)
        if not in_order and not self.eager:
            raise Unsupported(Reason.FIELD_ORDER)
        function = plan.selects[object_type] = codegen.selection(plans, in_order=in_order, eager=self.eager)
        if object_type is plan.innermost:
            plan.selected = function
            if in_order and plan.depth == 0 and all(map(_is_equal_anywhere, plans)):
                shape = object_type, *((below.key, below.name, *below.conditions) for below in plans)
                plan.equality_key = self._shapes.setdefault(shape, object())

    def _plans(
        self, parent: FieldPlan | None, kind: GraphQLObjectType, fields: collect_fields.Fields
    ) -> list[FieldPlan]:
        plans = []
        for key, occurrences in fields.items():
            name = occurrences[0].node.name.value
            field = self.schema.get_field(kind, name)
            if field is None:
                continue
            plan = FieldPlan(self.schema, parent, kind, key, field, occurrences)
            plan.resolver = kind.name if name == "__typename" else self._resolver_of(plan)
            if not isinstance(plan.resolver, str) and not has_valid_names(plan.resolver):
                plan.resolver = core_resolver_of(plan)
            plans.append(plan)
            self._fields.append(field)
            for object_type in collect_fields.object_types(self.schema, plan.innermost):
                self._compile_selection(plan, object_type)
        return plans

    # Executing

    def start_execution(
        self,
        root: Any,
        context: Any,
        given: dict[str, Any] | None,
        build_executor: Callable[[Execution], "Executor[Any]"],
        executor: "Executor[Any] | None" = None,
    ) -> Execution | None:
        """Return an execution with the variables `given`; None if graphql-core has to coerce or reject them.

        `build_executor` builds graphql-core's executor for the execution when it is needed.
        """
        variables = self._variables.coerced(given) if executor is None else executor.variable_values.coerced
        if variables is None:
            return None
        for name in self._conditional:
            if variables.get(name).__class__ is not bool:
                return None
        return self._execution(self, root, context, variables, given, build_executor, executor)


def _is_coroutine(plan: FieldPlan) -> bool:
    """Return whether the field is always included, and its resolver is a coroutine function."""
    return isinstance(plan.resolver, DirectResolver) and plan.resolver.is_async and not plan.conditions


def _is_equal_anywhere(plan: FieldPlan) -> bool:
    """Return whether a field completes equally, and without waiting, wherever its object is."""
    return isinstance(plan.resolver, str) or (
        isinstance(plan.resolver, AttributeResolver) and plan.leaf and not plan.depth
    )
