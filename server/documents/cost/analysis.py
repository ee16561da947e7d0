"""Cost analysis: each operation is compiled once, into a formula that estimates its cost for given variables."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from graphql import (
    DocumentNode,
    GraphQLField,
    GraphQLNamedType,
    GraphQLObjectType,
    GraphQLSchema,
    get_named_type,
    is_abstract_type,
    is_leaf_type,
    is_object_type,
)
from graphql.language import (
    ArgumentNode,
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    InlineFragmentNode,
    OperationDefinitionNode,
    SelectionSetNode,
)

from datastore.model.access_patterns import CostModel
from server.documents.cost.amounts import (
    ANY_TIME,
    Amount,
    Condition,
    EstimateInput,
    Values,
    arguments_of,
    both,
    condition_of,
    either,
    greatest,
    of_representations,
    only_if,
    times,
    total,
    value_of,
)
from server.documents.cost.field_cost import FieldCost
from server.documents.incremental import is_directive

# A selected field, the type condition of its fragment (None for any type), and the condition of `@skip` and `@include`.
_Selection = tuple[str | None, FieldNode, Condition]
# A cost model, and the arguments of a field whose cost it estimates.
Modelled = tuple[CostModel, Values]
# The fields of an operation for which statistics are read. Further fields are estimated from cached statistics.
MAX_LOADED = 4


class CostEstimate(NamedTuple):
    """The estimated read units of an operation, and values of its response: the fields of all objects."""

    units: float
    values: float


class CostFormula:
    """The cost of one operation. `fixed` is its estimate if it does not depend on variables, otherwise None."""

    def __init__(
        self, units: Amount, values: Amount, defaults: Mapping[str, Any], modelled: Sequence["Modelled"] = ()
    ) -> None:
        self.modelled = modelled
        self.fixed = None if callable(units) or callable(values) else CostEstimate(units, values)
        self._units, self._values = units, values
        self._defaults = dict(defaults)

    async def load(self, variables: Mapping[str, Any], now: datetime) -> None:
        """Let the cost models read the statistics of the first `MAX_LOADED` fields whose cost they estimate."""
        given = EstimateInput({**self._defaults, **variables}, now)
        for model, values in self.modelled[:MAX_LOADED]:
            await model.load(values(given) if callable(values) else values, now)

    def of(self, variables: Mapping[str, Any], now: datetime) -> CostEstimate:
        """Return the estimate for unchecked variables. A variable of a wrong type counts as absent."""
        if self.fixed is not None:
            return self.fixed
        given = EstimateInput({**self._defaults, **variables}, now)
        units, values = self._units, self._values
        return CostEstimate(units(given) if callable(units) else units, values(given) if callable(values) else values)


class CostAnalysis:
    """The cost analysis of operations on a schema. `steps` counts the visited selections of all documents."""

    def __init__(self, schema: GraphQLSchema, models: Mapping[str, CostModel] | None = None) -> None:
        self.schema = schema
        self.models = models or {}
        self.steps = 0
        self._prices: dict[int, FieldCost] = {}

    def field_cost(self, field: GraphQLField) -> FieldCost:
        """Return the cost of a field, which is computed once."""
        price = self._prices.get(id(field))
        if price is None:
            price = self._prices[id(field)] = FieldCost(field)
        return price

    def estimate(self, document: DocumentNode, operation: OperationDefinitionNode) -> CostFormula:
        """Return the formula of a valid operation."""
        defaults = default_values(operation)
        root = self.schema.get_root_type(operation.operation)
        sets = [operation.selection_set]
        builder = _CostBuilder(self, document)
        units, values = builder.beneath(root, sets), _ValueCounter(self, document).beneath(root, sets)
        return CostFormula(units, values, defaults, builder.modelled)

    def parts(self, document: DocumentNode, operation: OperationDefinitionNode) -> CostFormula:
        """Return the formula whose values are the deferred fragments and streamed lists of a valid operation."""
        root = self.schema.get_root_type(operation.operation)
        parts = _PartCounter(self, document).beneath(root, [operation.selection_set])
        return CostFormula(0.0, parts, default_values(operation))


@dataclass(slots=True)
class _SelectedField:
    """A field of an object: all nodes that select it, each with its condition."""

    nodes: list[FieldNode]
    conditions: list[Condition]


class _CostBuilder:
    """A builder of the formulas of one document. It visits each combination of selection sets once."""

    def __init__(self, costs: CostAnalysis, document: DocumentNode) -> None:
        self.modelled: list[Modelled] = []
        self._costs = costs
        self._schema = costs.schema
        self._fragments = {
            part.name.value: part for part in document.definitions if isinstance(part, FragmentDefinitionNode)
        }
        self._formulas: dict[tuple[str, tuple[int, ...]], Amount] = {}

    def beneath(self, parent: GraphQLNamedType | None, sets: Sequence[SelectionSetNode]) -> Amount:
        """Return the cost of the selections for one object; for an abstract type that of the most expensive type."""
        if parent is None or not sets:
            return 0.0
        key = (parent.name, tuple(map(id, sets)))
        if key not in self._formulas:
            selected = self._selections(sets)
            kinds = self._kinds(parent, selected)
            self._formulas[key] = greatest([self._object(kind, selected) for kind in kinds])
        return self._formulas[key]

    def _selections(self, sets: Sequence[SelectionSetNode]) -> list[_Selection]:
        """Return the selected fields, each with the type condition of its fragment."""
        found: list[_Selection] = []
        visited: dict[str, bool] = {}
        waiting: list[tuple[SelectionSetNode, str | None, Condition]] = [(each, None, None) for each in sets]
        while waiting:
            selection_set, on, when = waiting.pop()
            for selection in selection_set.selections:
                self._costs.steps += 1
                combined = both(when, condition_of(selection.directives or ()))
                if isinstance(selection, FieldNode):
                    found.append((on, selection, combined))
                elif isinstance(selection, InlineFragmentNode):
                    condition = selection.type_condition
                    waiting.append((selection.selection_set, condition.name.value if condition else on, combined))
                elif isinstance(selection, FragmentSpreadNode):
                    fragment = self._fragments[selection.name.value]
                    # A repeated spread counts as unconditional, so that a fragment is visited at most twice.
                    again = visited.get(selection.name.value)
                    if again is not True:
                        combined = combined if again is None else None
                        visited[selection.name.value] = combined is None
                        waiting.append((fragment.selection_set, fragment.type_condition.name.value, combined))
        return found

    def _kinds(self, parent: GraphQLNamedType, selected: list[_Selection]) -> list[Any]:
        """Return the object types to estimate: each that a fragment names, and one of the others."""
        if not is_abstract_type(parent):
            return [parent]
        named = {on for on, _, _ in selected}
        possible = self._schema.get_possible_types(parent)
        special = [kind for kind in possible if kind.name in named]
        return special + [kind for kind in possible if kind.name not in named][:1]

    def _object(self, kind: GraphQLObjectType, selected: list[_Selection]) -> Amount:
        own: dict[Any, list[Amount]] = {}
        amounts: list[Amount] = []
        for price, amount in self._amounts(kind, selected):
            # Fields with the same patterns that read the parent's item share one read.
            (own.setdefault(price.patterns, []) if price.own else amounts).append(amount)
        return total([*amounts, *(greatest(shared) for shared in own.values())])

    def _amounts(self, kind: GraphQLObjectType, selected: list[_Selection]) -> Iterator[tuple[FieldCost, Amount]]:
        """Yield the cost of each selected field of an object type, and its amount."""
        for field in _by_response_name(self._of_kind(kind, selected)).values():
            definition = kind.fields.get(field.nodes[0].name.value)
            if definition is not None:
                price = self._costs.field_cost(definition)
                yield price, only_if(either(field.conditions), self._field(definition, price, field.nodes))

    def _of_kind(self, kind: GraphQLObjectType, selected: list[_Selection]) -> list[_Selection]:
        """Return the selections that apply to objects of this type."""
        return [
            selection
            for selection in selected
            if selection[0] is None or selection[0] == kind.name or self._is_subtype(kind, selection[0])
        ]

    def _is_subtype(self, kind: GraphQLObjectType, on: str) -> bool:
        condition = self._schema.get_type(on)
        return is_abstract_type(condition) and self._schema.is_sub_type(condition, kind)

    def _field(self, definition: GraphQLField, price: FieldCost, nodes: list[FieldNode]) -> Amount:
        if price.units_of_type:
            return self._entities(definition, price, nodes)
        inner = self._inner(definition, price, nodes)
        if not price.patterns and not callable(inner) and inner == 0:
            return 0.0
        if price.from_parent and price.from_parent.issuperset(self._names(nodes)):
            return inner
        given: Sequence[ArgumentNode] = nodes[0].arguments or ()
        if price.depends_on_consistency:
            given = [argument for argument in given if argument.name.value == "consistent"]
        values: Values = {} if price.fixed else arguments_of(definition, given)
        model = self._costs.models.get(price.model)
        if model is not None:
            self.modelled.append((model, values))
            return _modelled(model, price, values, inner)
        return _priced(price, values, inner)

    def _inner(self, definition: GraphQLField, price: FieldCost, nodes: list[FieldNode]) -> Amount:
        """Return the amount of the selections beneath a field, for one of its objects."""
        named = get_named_type(definition.type)
        if is_leaf_type(named):
            return 0.0
        sets = [node.selection_set for node in nodes if node.selection_set]
        return self._entries(named, sets) if price.is_connection else self.beneath(named, sets)

    def _entities(self, definition: GraphQLField, price: FieldCost, nodes: list[FieldNode]) -> Amount:
        """Return the amount of all objects of a field whose argument names the type of each."""
        sets = [node.selection_set for node in nodes if node.selection_set]
        selected = self._selections(sets)
        kinds = self._kinds(get_named_type(definition.type), selected)
        inner = {kind.name: self._object(kind, selected) for kind in kinds}
        # The last kind stands for the types that no fragment names.
        amounts = {
            name: total([own, inner.get(name, inner[kinds[-1].name])])
            for name, own in self._objects(price, sets).items()
        }
        return of_representations(arguments_of(definition, nodes[0].arguments or ()), amounts)

    def _objects(self, price: FieldCost, _sets: Sequence[SelectionSetNode]) -> Mapping[str, float]:
        """Return the amount of an object itself, by the name of its type."""
        return price.units_of_type

    def _names(self, nodes: list[FieldNode]) -> set[str]:
        """Return the names of the fields that are selected beneath these nodes."""
        sets = [node.selection_set for node in nodes if node.selection_set]
        return {field.name.value for _, field, _ in self._selections(sets)}

    def _entries(self, connection: GraphQLNamedType, sets: Sequence[SelectionSetNode]) -> Amount:
        """Return the cost of one entry of a connection. The caller multiplies it by the size of the page."""
        assert is_object_type(connection)
        amounts: list[Amount] = []
        for field in _by_response_name(self._selections(sets)).values():
            definition = connection.fields.get(field.nodes[0].name.value)
            beneath = [node.selection_set for node in field.nodes if node.selection_set]
            if definition is not None and beneath:
                amount = self.beneath(get_named_type(definition.type), beneath)
                amounts.append(only_if(either(field.conditions), amount))
        return total(amounts)


class _ValueCounter(_CostBuilder):
    """A builder of formulas for the number of values in a response: each field of each object counts as one."""

    def _object(self, kind: GraphQLObjectType, selected: list[_Selection]) -> Amount:
        return total(amount for _, amount in self._amounts(kind, selected))

    def _field(self, definition: GraphQLField, price: FieldCost, nodes: list[FieldNode]) -> Amount:
        if price.units_of_type:
            return total([self._own(price, nodes), self._entities(definition, price, nodes)])
        inner, own = self._inner(definition, price, nodes), self._own(price, nodes)
        if not callable(inner) and inner == 0:
            return own
        if not price.counts:
            return total([own, inner])
        values = arguments_of(definition, nodes[0].arguments or ())

        def amount(given: EstimateInput) -> float:
            size = price.size(values(given) if callable(values) else values, given.now)
            return own + size * (inner(given) if callable(inner) else inner)

        return (
            amount
            if callable(values) or callable(inner) or price.depends_on_time
            else own + price.size(values, ANY_TIME) * inner
        )

    def _own(self, price: FieldCost, nodes: list[FieldNode]) -> float:
        """Return the amount of a field itself."""
        return 1.0

    def _objects(self, price: FieldCost, _sets: Sequence[SelectionSetNode]) -> Mapping[str, float]:
        return dict.fromkeys(price.units_of_type, 0.0)


class _PartCounter(_ValueCounter):
    """A builder of formulas for the number of deferred fragments and streamed lists in a response."""

    def __init__(self, costs: CostAnalysis, document: DocumentNode) -> None:
        super().__init__(costs, document)
        self._counts: dict[tuple[int, ...], float] = {}

    def beneath(self, parent: GraphQLNamedType | None, sets: Sequence[SelectionSetNode]) -> Amount:
        return total([self._directives(sets), super().beneath(parent, sets)])

    def _own(self, price: FieldCost, nodes: list[FieldNode]) -> float:
        # `_entries` does not visit the selections of a connection themselves.
        return self._directives([node.selection_set for node in nodes if node.selection_set]) * price.is_connection

    def _objects(self, price: FieldCost, sets: Sequence[SelectionSetNode]) -> Mapping[str, float]:
        return dict.fromkeys(price.units_of_type, self._directives(sets))

    def _directives(self, sets: Sequence[SelectionSetNode]) -> float:
        """Return the number of directives in selection sets, and in their fragments."""
        key = tuple(map(id, sets))
        if key not in self._counts:
            self._counts[key] = self._counted(sets)
        return self._counts[key]

    def _counted(self, sets: Sequence[SelectionSetNode]) -> float:
        found, visited, waiting = 0, set[str](), list(sets)
        while waiting:
            for selection in waiting.pop().selections:
                found += sum(map(is_directive, selection.directives or ()))
                if isinstance(selection, InlineFragmentNode):
                    waiting.append(selection.selection_set)
                elif isinstance(selection, FragmentSpreadNode) and selection.name.value not in visited:
                    visited.add(selection.name.value)
                    waiting.append(self._fragments[selection.name.value].selection_set)
        return float(found)


def default_values(operation: OperationDefinitionNode) -> dict[str, Any]:
    """Return the default values of an operation's variables."""
    return {
        variable.variable.name.value: value_of(variable.default_value, {})
        for variable in operation.variable_definitions or ()
        if variable.default_value is not None
    }


def _by_response_name(selected: Iterable[_Selection]) -> dict[str, _SelectedField]:
    """Return the fields by their response names."""
    fields: dict[str, _SelectedField] = {}
    for _, node, when in selected:
        field = fields.setdefault(node.alias.value if node.alias else node.name.value, _SelectedField([], []))
        field.nodes.append(node)
        field.conditions.append(when)
    return fields


def _priced(price: FieldCost, values: Values, inner: Amount) -> Amount:
    """Return the cost of a field, plus `inner` for each of its objects."""
    if price.fixed:
        # Neither the arguments nor the time matter.
        return total([price.fixed_cost.units, times(price.fixed_cost.size, inner)])
    if price.depends_on_consistency and not callable(values):
        constant = price.measure(values, ANY_TIME)
        return total([constant.units, times(constant.size, inner)])

    def amount(given: EstimateInput) -> float:
        measured = price.measure(values(given) if callable(values) else values, given.now)
        return measured.units + measured.size * (inner(given) if callable(inner) else inner)

    return amount


def _modelled(model: CostModel, price: FieldCost, values: Values, inner: Amount) -> Amount:
    """Return the cost of a field by its cost model, plus `inner` for each of its objects.

    Without statistics the declaration of the field decides, up to `max_units` of the model.
    """
    priced = _priced(price, values, 0.0)

    def amount(given: EstimateInput) -> float:
        arguments = values(given) if callable(values) else values
        units = model.units(arguments, given.now)
        own: float
        if units is None:
            own = min(priced(given) if callable(priced) else priced, model.max_units + price.background_cost)
        else:
            own = units + price.background_cost
        return own + price.size(arguments, given.now) * (inner(given) if callable(inner) else inner)

    return amount
