"""The terms of an estimate: numbers, or functions of an operation's variables and of the time.

A number is computed once for each document.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from graphql import GraphQLField, Undefined, value_from_ast_untyped
from graphql.language import ArgumentNode, DirectiveNode, ListValueNode, Node, ObjectValueNode, ValueNode, VariableNode


class EstimateInput(NamedTuple):
    """The input of an estimate: the variables, with their defaults, and the time."""

    variables: Mapping[str, Any]
    now: datetime


# A number, or the function that computes it.
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
    written = {node.name.value: node.value for node in nodes}
    if not any(has_variable(value) for value in written.values()):
        return defaults | values_of(written, {})
    return lambda given: defaults | values_of(written, given.variables)


def values_of(written: Mapping[str, ValueNode], variables: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value_of(value, variables) for name, value in written.items()}


def value_of(node: ValueNode, variables: Mapping[str, Any]) -> Any:
    """Return the value of a literal; None for a literal without a value, such as a number of 5,000 digits."""
    if isinstance(node, VariableNode):
        return variables.get(node.name.value)
    try:
        value = value_from_ast_untyped(node, dict(variables))
    except ValueError:
        # Such numbers may be ids. A list keeps its length, and an object its fields.
        if isinstance(node, ListValueNode):
            return [value_of(value, variables) for value in node.values]
        if isinstance(node, ObjectValueNode):
            return {field.name.value: value_of(field.value, variables) for field in node.fields}
        return None
    return None if value is Undefined else value


def has_variable(node: Node) -> bool:
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if isinstance(one, VariableNode):
            return True
        waiting += getattr(one, "values", None) or getattr(one, "fields", None) or ()
        inner = getattr(one, "value", None)
        if isinstance(inner, Node):
            waiting.append(inner)
    return False


def condition_of(directives: Iterable[DirectiveNode]) -> Condition:
    """Return the condition on which a selection is executed, from its `@skip` and `@include`."""
    found: Condition = None
    for directive in directives:
        if directive.name.value not in ("skip", "include") or not directive.arguments:
            continue
        found = both(found, _condition_on(directive.arguments[0].value, wanted=directive.name.value == "include"))
    return found


def _condition_on(value: ValueNode, wanted: bool) -> Condition:
    def holds(given: EstimateInput) -> bool:
        value_given = value_of(value, given.variables)
        return value_given is wanted or not isinstance(value_given, bool)

    return holds


def both(one: Condition, other: Condition) -> Condition:
    if one is None or other is None:
        return one or other
    return lambda given: one(given) and other(given)


def either(conditions: list[Condition]) -> Condition:
    known = [condition for condition in conditions if condition is not None]
    if len(known) < len(conditions):
        return None
    return known[0] if len(known) == 1 else lambda given: any(condition(given) for condition in known)


def only_if(condition: Condition, amount: Amount) -> Amount:
    if condition is None or (not callable(amount) and amount == 0):
        return amount
    return lambda given: (amount(given) if callable(amount) else amount) if condition(given) else 0.0


def total(amounts: Iterable[Amount]) -> Amount:
    known, unknown = _partition(amounts)
    fixed = sum(known)
    if not unknown:
        return fixed
    if len(unknown) == 1 and not fixed:
        return unknown[0]
    return lambda given: fixed + sum(amount(given) for amount in unknown)


def greatest(amounts: Iterable[Amount]) -> Amount:
    known, unknown = _partition(amounts)
    least = max(known, default=0.0)
    if not unknown:
        return least
    return lambda given: max(least, *(amount(given) for amount in unknown))


def times(factor: float, amount: Amount) -> Amount:
    return (lambda given: factor * amount(given)) if callable(amount) else factor * amount


def _partition(amounts: Iterable[Amount]) -> tuple[list[float], list[Callable[[EstimateInput], float]]]:
    all_amounts = list(amounts)
    return (
        [amount for amount in all_amounts if not callable(amount)],
        [amount for amount in all_amounts if callable(amount)],
    )
