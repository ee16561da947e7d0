"""The terms of an estimate: numbers, and functions of an operation's variables and of the time.

A term that is a number is computed once for each document.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from graphql import GraphQLField, Undefined, value_from_ast_untyped
from graphql.language import ArgumentNode, DirectiveNode, ListValueNode, Node, ObjectValueNode, ValueNode, VariableNode

from datastore.model.access_patterns import MAX_PAGE_SIZE


class EstimateInput(NamedTuple):
    """The input of an estimate: the variables, with their defaults, and the time."""

    variables: Mapping[str, Any]
    now: datetime


# A time for terms that do not depend on the time.
ANY_TIME = datetime.min.replace(tzinfo=UTC)
# A number, or a function that computes it.
Amount = float | Callable[[EstimateInput], float]
Condition = Callable[[EstimateInput], bool] | None
Values = dict[str, Any] | Callable[[EstimateInput], dict[str, Any]]


def arguments_of(definition: GraphQLField, nodes: Iterable[ArgumentNode]) -> Values:
    """Return the values of a field's arguments, with the defaults of absent ones."""
    defaults = {
        name: argument.default_value
        for name, argument in definition.args.items()
        if argument.default_value is not Undefined
    }
    literals = {node.name.value: node.value for node in nodes}
    if not any(has_variable(value) for value in literals.values()):
        return defaults | values_of(literals, {})
    return lambda given: defaults | values_of(literals, given.variables)


def values_of(literals: Mapping[str, ValueNode], variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of literals by name."""
    return {name: value_of(literal, variables) for name, literal in literals.items()}


def value_of(node: ValueNode, variables: Mapping[str, Any]) -> Any:
    """Return the value of a literal, or None if Python cannot represent it, such as a number of 5,000 digits."""
    if isinstance(node, VariableNode):
        return variables.get(node.name.value)
    try:
        value = value_from_ast_untyped(node, dict(variables))
    except ValueError:
        # The type ID accepts such numbers. A list keeps its length, and an object its fields.
        if isinstance(node, ListValueNode):
            return [value_of(value, variables) for value in node.values]
        if isinstance(node, ObjectValueNode):
            return {field.name.value: value_of(field.value, variables) for field in node.fields}
        return None
    return None if value is Undefined else value


def has_variable(node: Node) -> bool:
    """Return whether a value contains a variable."""
    waiting = [node]
    while waiting:
        current = waiting.pop()
        if isinstance(current, VariableNode):
            return True
        waiting += getattr(current, "values", None) or getattr(current, "fields", None) or ()
        inner = getattr(current, "value", None)
        if isinstance(inner, Node):
            waiting.append(inner)
    return False


def condition_of(directives: Iterable[DirectiveNode]) -> Condition:
    """Return the condition of `@skip` and `@include` under which a selection is executed."""
    condition: Condition = None
    for directive in directives:
        if directive.name.value not in ("skip", "include") or not directive.arguments:
            continue
        required = directive.name.value == "include"
        condition = both(condition, _condition_on(directive.arguments[0].value, required=required))
    return condition


def _condition_on(value: ValueNode, required: bool) -> Condition:
    def holds(given: EstimateInput) -> bool:
        value_given = value_of(value, given.variables)
        return value_given is required or not isinstance(value_given, bool)

    return holds


def both(first: Condition, second: Condition) -> Condition:
    """Return the condition that holds if both conditions hold. None always holds, here and below."""
    if first is None or second is None:
        return first or second
    return lambda given: first(given) and second(given)


def either(conditions: list[Condition]) -> Condition:
    """Return the condition that holds if any of the conditions holds."""
    proper = [condition for condition in conditions if condition is not None]
    if len(proper) < len(conditions):
        return None
    return proper[0] if len(proper) == 1 else lambda given: any(condition(given) for condition in proper)


def only_if(condition: Condition, amount: Amount) -> Amount:
    """Return the amount if the condition holds, else 0."""
    if condition is None or (not callable(amount) and amount == 0):
        return amount
    return lambda given: (amount(given) if callable(amount) else amount) if condition(given) else 0.0


def total(amounts: Iterable[Amount]) -> Amount:
    """Return the sum of the amounts."""
    numbers, functions = _partition(amounts)
    fixed = sum(numbers)
    if not functions:
        return fixed
    if len(functions) == 1 and not fixed:
        return functions[0]
    return lambda given: fixed + sum(amount(given) for amount in functions)


def greatest(amounts: Iterable[Amount]) -> Amount:
    """Return the greatest of the amounts, or 0 if there are none."""
    numbers, functions = _partition(amounts)
    fixed = max(numbers, default=0.0)
    if not functions:
        return fixed
    return lambda given: max(fixed, *(amount(given) for amount in functions))


def times(factor: float, amount: Amount) -> Amount:
    """Return the product of a factor and an amount."""
    return (lambda given: factor * amount(given)) if callable(amount) else factor * amount


def of_representations(values: Values, amounts: Mapping[str, Amount]) -> Amount:
    """Return the sum of the amounts of the types that the argument `representations` names.

    Objects of other types are refused, and cost nothing.
    """

    def amount(given: EstimateInput) -> float:
        arguments = values(given) if callable(values) else values
        found = 0.0
        for name, number in _types_in(arguments.get("representations")).items():
            each = amounts.get(name, 0.0)
            found += number * (each(given) if callable(each) else each)
        return found

    varies = callable(values) or any(map(callable, amounts.values()))
    return amount if varies else amount(EstimateInput({}, ANY_TIME))


def _types_in(representations: object) -> Counter[str]:
    """Return the number of representations of each type, for an unchecked value. More than a page are refused."""
    given = representations[:MAX_PAGE_SIZE] if isinstance(representations, list) else [representations]
    names = [each.get("__typename") for each in given if isinstance(each, dict)]
    return Counter(name for name in names if isinstance(name, str))


def _partition(amounts: Iterable[Amount]) -> tuple[list[float], list[Callable[[EstimateInput], float]]]:
    all_amounts = list(amounts)
    return (
        [amount for amount in all_amounts if not callable(amount)],
        [amount for amount in all_amounts if callable(amount)],
    )
