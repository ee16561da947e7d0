"""Operations as programs: compiled once, executed again and again."""

from collections.abc import Awaitable, Callable, Hashable, Iterator
from typing import Any

from graphql import (
    ExecutionResult,
    FragmentDefinitionNode,
    GraphQLError,
    GraphQLObjectType,
    GraphQLSchema,
    OperationDefinitionNode,
    OperationType,
)
from graphql.execution import Executor
from graphql.type.directives import GraphQLDisableErrorPropagationDirective

from jit import codegen as source
from jit import collect_fields as selections
from jit.collect_fields import ALWAYS, Unsupported
from jit.completion import adopt_all
from jit.execution import Execution
from jit.field_plan import FieldPlan, Select
from jit.field_resolvers import AttributeResolver, Resolver
from jit.variables import UsualVariables

# Each takes some 2.5 KB, and up to 0.07 ms to compile: as long as graphql-core needs to execute it a few times. All of
# them may be compiled in one turn of the event loop.
MOST_FIELDS = 300

OfField = Callable[[FieldPlan], Resolver]
Fragments = dict[str, FragmentDefinitionNode]


class CompiledOperation:
    """An operation of a validated document, compiled for a schema. Raises `Unsupported` for what is not compiled.

    `resolver_of` tells how its fields are resolved. `types_by_class`: whether a value is of a type follows from its
    class, so that the schema is not asked again for each value.
    """

    def __init__(
        self,
        schema: GraphQLSchema,
        fragments: Fragments,
        operation: OperationDefinitionNode,
        resolver_of: OfField,
        *,
        types_by_class: bool = False,
    ) -> None:
        self.schema = schema
        self.fragments = fragments
        self.operation = operation
        self.types_by_class = types_by_class
        self._resolver_of = resolver_of
        survey = selections.Survey(schema, operation, fragments)
        if survey.fields > MOST_FIELDS:
            raise Unsupported("More fields than are worth it.")
        self.fields = survey.fields
        self._conditional = survey.conditional
        self._usual = UsualVariables(schema, operation)
        self._shapes: dict[Hashable, object] = {}
        self._roots = self._compile_roots()

    # Compiling

    def _compile_roots(self) -> list[Select]:
        """The functions of the root: one, or in a mutation one for each field."""
        operation = self.operation
        disabling = GraphQLDisableErrorPropagationDirective.name
        if any(directive.name.value == disabling for directive in operation.directives or ()):
            raise Unsupported("Errors that are not propagated.")
        root = self.schema.get_root_type(operation.operation)
        if root is None:
            raise Unsupported("A root that the schema does not have.")
        fields = selections.collect(self.schema, self.fragments, root, [(operation.selection_set, ALWAYS)])
        plans = self._plans(None, root, fields)
        ordered = selections.is_ordered(fields)
        if operation.operation is OperationType.MUTATION and not ordered:
            raise Unsupported("Mutations in an order that depends on variables.")
        groups = [[plan] for plan in plans] if operation.operation is OperationType.MUTATION else [plans]
        return [source.selection(group, in_order=ordered) for group in groups]

    def compile_selection(self, plan: FieldPlan, object_type: GraphQLObjectType) -> Select:
        """The function for objects of a type that the field has; below an interface or a union when one is met."""
        below = [(node.selection_set, condition) for node, condition, _ in plan.occurrences if node.selection_set]
        fields = selections.collect(self.schema, self.fragments, object_type, below)
        plans = self._plans(plan, object_type, fields)
        in_order = selections.is_ordered(fields)
        function = plan.selects[object_type] = source.selection(plans, in_order=in_order)
        if object_type is plan.innermost:
            plan.selected = function
            if in_order and plan.depth == 0 and all(map(_is_alike_anywhere, plans)):
                shape = object_type, *((below.key, below.name, *below.conditions) for below in plans)
                plan.alike = self._shapes.setdefault(shape, object())
        return function

    def _plans(self, parent: FieldPlan | None, kind: GraphQLObjectType, fields: selections.Fields) -> list[FieldPlan]:
        plans = []
        for key, occurrences in fields.items():
            name = occurrences[0].node.name.value
            field = self.schema.get_field(kind, name)
            if field is None:
                continue
            plan = FieldPlan(self, parent, kind, key, field, occurrences)
            plan.resolver = kind.name if name == "__typename" else self._resolver_of(plan)
            plans.append(plan)
        return plans

    # Executing

    def begun(
        self,
        root: Any,
        context: Any,
        given: dict[str, Any] | None,
        build_executor: Callable[[Execution], "Executor[Any]"],
        executor: "Executor[Any] | None" = None,
    ) -> Execution | None:
        """An execution with these variables; None where graphql-core has to look at them.

        `build_executor` makes graphql-core's executor for it, should it be needed.
        """
        variables = self._usual.coerced(given) if executor is None else executor.variable_values.coerced
        if variables is None:
            return None
        for name in self._conditional:
            if variables.get(name).__class__ is not bool:
                return None
        return Execution(self, root, context, variables, given, build_executor, executor)

    def run(self, run: Execution, *, serially: bool) -> ExecutionResult | Awaitable[ExecutionResult]:
        """Execute it; an awaitable where something has to be waited for."""
        if not self._roots:
            run.data = {}
        rest = iter(self._roots)
        for root in rest:
            self._root(root, run)
            if run.is_nulled:
                break
            if serially and run.live:
                return self._go_on(rest, run)
        return run.awaited() if run.live else run.result()

    async def _go_on(self, rest: Iterator[Select], run: Execution) -> ExecutionResult:
        await run.settled()
        for root in rest:
            if run.is_nulled:
                break
            self._root(root, run)
            await run.settled()
        return run.result()

    def _root(self, root: Select, run: Execution) -> None:
        run.shared.clear()  # what a mutation before this one made of it
        try:
            part = root(run, run.root, None)
        except GraphQLError as error:
            run.null_all(error)
            return
        except BaseException:
            run.give_up()
            raise
        if run.data is None:
            run.data = part
            return
        run.data.update(part)
        adopt_all(run.data, part.values())


def _is_alike_anywhere(plan: FieldPlan) -> bool:
    """Whether the field of an object is answered alike, and at once, wherever the object stands."""
    return isinstance(plan.resolver, str) or (
        isinstance(plan.resolver, AttributeResolver) and plan.leaf and not plan.depth
    )
