"""Random operations over a schema of `random_schemas`, with all forms of
selections, directives, merges and variables.
"""

import json
import re
from random import Random
from typing import Any

from graphql import (
    GraphQLEnumType,
    GraphQLField,
    GraphQLInputObjectType,
    GraphQLInputType,
    GraphQLList,
    GraphQLNonNull,
    GraphQLObjectType,
    GraphQLSchema,
    get_named_type,
    is_abstract_type,
    is_leaf_type,
    is_non_null_type,
    parse,
)

from tests.support.executor_runs import ExecutedOperation

DEPTH = 4
USED = re.compile(r"\$(\w+)")
KINDS = ["query", "query", "query", "query", "query", "mutation", "mutation", "subscription"]
LITERALS: dict[str, list[str]] = {
    "Int": ["0", "7", "-1"],
    "Float": ["1", "2.5", "1e3"],
    "String": ['""', '"text"', '"""block"""'],
    "Boolean": ["true", "false"],
    "ID": ['"id"', "4"],
    "Odd": ["1", "3", "5"],
    "Color": ["RED", "GREEN", "BLUE"],
}
# Values that a client may send for a variable; some are refused.
SENT: dict[str, list[Any]] = {
    "Int": [0, 5, 2.0],
    "Float": [1, 0.5],
    "String": ["", "sent"],
    "Boolean": [True, False],
    "ID": ["id", 4],
    "Odd": [1, 7],
    "Color": ["RED", "BLUE"],
}
REFUSED: list[Any] = ["x", 2**31, {"a": "b"}, [None], 2, {}]
INTROSPECTION = [
    "__schema { queryType { name } types { name kind } }",
    '__type(name: "A") { name fields { name args { name defaultValue } type { name kind ofType { name } } } }',
    '__type(name: "Named") { possibleTypes { name } interfaces { name } }',
    '__type(name: "none") { name }',
]


def random_operation(schema: GraphQLSchema, seed: int) -> ExecutedOperation:
    rng = Random(seed)
    maker = _Maker(rng, schema)
    kind = rng.choice(KINDS)
    text = maker.document(kind)
    variables = maker.sent()
    name = rng.choice([None, "Named"]) if rng.random() < 0.98 else "Nobody"
    options = {"hooks": rng.random() < 0.2, "hide_suggestions": rng.random() < 0.2}
    return ExecutedOperation(text, parse(text), variables, name, kind, options)


class _Maker:
    """A response name stands for one field with one set of arguments, so that selections never conflict."""

    def __init__(self, rng: Random, schema: GraphQLSchema) -> None:
        self._rng = rng
        self._schema = schema
        self._names: dict[str, str] = {}
        self._calls: dict[str, list[str]] = {}
        self._variables: dict[str, tuple[str, GraphQLInputType, str | None]] = {}
        self._fragments: list[tuple[str, str, str]] = []

    def document(self, kind: str) -> str:
        rng = self._rng
        root = self._schema.type_map[kind.capitalize()]
        if kind == "subscription":
            name, field = rng.choice(list(root.fields.items()))  # type: ignore[attr-defined]
            body = "{" + self._field(name, field, DEPTH, directed=False) + "}"
            if rng.random() < 0.2:
                body = "{ ... on Subscription " + body + "}"
        else:
            body = self._set(root, DEPTH, rng.randint(2, 6))
        if kind == "query" and rng.random() < 0.1:
            body = body[:-1] + rng.choice(INTROSPECTION) + "}"
        self._forget(
            {name for text in (body, *(text for _, _, text in self._fragments)) for name in USED.findall(text)}
        )
        declared = " ".join(
            f"${name}: {kind}" + (f" = {default}" if default else "")
            for name, (kind, _, default) in self._variables.items()
        )
        unpropagated = " @experimental_disableErrorPropagation" if rng.random() < 0.05 else ""
        parts = [f"{kind} Named{f'({declared})' if declared else ''}{unpropagated} {body}"]
        parts += [f"fragment {name} on {on} {body}" for name, on, body in self._fragments]
        rng.shuffle(parts)
        return "\n".join(parts)

    def _forget(self, used: set[str]) -> None:
        """Forget variables that are not used: arguments are made before their use is known."""
        self._variables = {name: made for name, made in self._variables.items() if name in used}

    def sent(self) -> dict[str, Any]:
        """Return values for the variables: omitted or null where allowed, and rarely one that is refused."""
        values: dict[str, Any] = {}
        for name, (_, kind, default) in self._variables.items():
            needed = isinstance(kind, GraphQLNonNull)
            fate = self._rng.random()
            if fate < 0.2 and (default or not needed):
                continue
            if fate < 0.3 and not needed:
                values[name] = None
            else:
                values[name] = self._rng.choice(REFUSED) if fate > 0.995 else self._value(kind)
        return values

    def _set(self, kind: Any, depth: int, count: int = 0) -> str:
        rng = self._rng
        count = count or rng.choice((1, 2, 2, 3, 4))
        parts = [self._selection(kind, depth) for _ in range(count)]
        if rng.random() < 0.15:
            parts.append(rng.choice(parts))  # a repeated selection merges with itself
        return "{ " + " ".join(parts) + " }"

    def _selection(self, kind: Any, depth: int) -> str:
        rng = self._rng
        fate = rng.random()
        if fate < 0.08:
            return f"{rng.choice(['', 't: '])}__typename{self._directives()}"
        if depth > 0 and fate < 0.22:
            on = rng.choice(self._overlapping(kind))
            condition = f" on {on.name}" if rng.random() < 0.8 or on is not kind else ""
            return f"...{condition}{self._directives()} {self._set(on, depth - 1)}"
        if depth > 0 and fate < 0.32:
            return f"...{self._fragment(kind, depth)}{self._directives()}"
        fields = list(getattr(kind, "fields", {}).items())
        if depth == 0:
            fields = [(name, field) for name, field in fields if is_leaf_type(get_named_type(field.type))]
        if not fields:
            return "__typename"
        name, field = rng.choice(fields)
        return self._field(name, field, depth)

    def _overlapping(self, kind: Any) -> list[Any]:
        """Return the types on which a fragment may be inside this type."""
        schema = self._schema
        possible = set(schema.get_possible_types(kind)) if is_abstract_type(kind) else {kind}
        found: list[Any] = []
        for other in schema.type_map.values():
            if is_abstract_type(other):
                if possible & set(schema.get_possible_types(other)):
                    found.append(other)
            elif isinstance(other, GraphQLObjectType) and other in possible:
                found.append(other)
        return found

    def _fragment(self, kind: Any, depth: int) -> str:
        on = self._rng.choice(self._overlapping(kind))
        made = [name for name, type_, _ in self._fragments if type_ == on.name]
        if made and self._rng.random() < 0.6:
            return self._rng.choice(made)
        body = self._set(on, min(depth - 1, 2))
        name = f"F{len(self._fragments)}"
        self._fragments.append((name, on.name, body))
        return name

    def _field(self, name: str, field: GraphQLField, depth: int, directed: bool = True) -> str:
        rng = self._rng
        call = name + self._arguments(name, field)
        response = rng.choice([None, None, None, "x", "y", "f0", "f1"])
        if response is None and self._names.get(name, call) != call:
            response = f"{name}_{len(self._names)}"
        if response is not None and self._names.get(response, call) != call:
            response = f"a{len(self._names)}"
        self._names[response or name] = call
        text = f"{response}: {call}" if response else call
        if directed:
            text += self._directives()
        kind = get_named_type(field.type)
        return text if is_leaf_type(kind) else f"{text} {self._set(kind, depth - 1)}"

    def _arguments(self, name: str, field: GraphQLField) -> str:
        """Return one of at most two argument lists of the field."""
        if not field.args:
            return ""
        made = self._calls.setdefault(name, [])
        if len(made) < 2:
            given = []
            for argument, declared in field.args.items():
                if (is_non_null_type(declared.type) and declared.default is None) or self._rng.random() < 0.7:
                    given.append(f"{argument}: {self._literal(declared.type, declared.default is not None)}")
            made.append(f"({', '.join(given)})" if given else "")
        return self._rng.choice(made)

    def _directives(self) -> str:
        rng = self._rng
        if rng.random() > 0.22:
            return ""
        kinds = rng.choice([["skip"], ["include"], ["skip", "include"]])
        return "".join(f" @{kind}(if: {self._condition(kind)})" for kind in kinds)

    def _condition(self, kind: str) -> str:
        if self._rng.random() < 0.4:
            return self._rng.choice(["true", "false"] if kind == "include" else ["false", "true"])
        kinds = GraphQLNonNull(self._schema.type_map["Boolean"])  # type: ignore[type-var]
        return self._variable(kinds, False)

    def _literal(self, kind: GraphQLInputType, default: bool, depth: int = 2) -> str:
        rng = self._rng
        if rng.random() < 0.35:
            return self._variable(kind, default)
        if isinstance(kind, GraphQLNonNull):
            return self._constant(kind.of_type, depth, True)
        return "null" if rng.random() < 0.1 else self._constant(kind, depth, True)

    def _constant(self, kind: Any, depth: int, varied: bool) -> str:
        rng = self._rng
        inner = (lambda kind: self._literal(kind, False, depth - 1)) if varied else self._plain
        if isinstance(kind, GraphQLList):
            if rng.random() < 0.15 and not isinstance(kind.of_type, GraphQLList):
                return self._constant(getattr(kind.of_type, "of_type", kind.of_type), depth, False)
            return "[" + ", ".join(inner(kind.of_type) for _ in range(rng.randint(0, 2))) + "]"
        if not isinstance(kind, GraphQLInputObjectType):
            return rng.choice(LITERALS[kind.name])
        if kind.is_one_of:
            name = rng.choice(list(kind.fields))
            return "{" + f"{name}: {self._constant(kind.fields[name].type, depth, False)}" + "}"
        given = []
        for name, field in kind.fields.items():
            if rng.random() < (0.5 if depth > 0 else 0) and (depth > 1 or name != "d"):
                given.append(f"{name}: {inner(field.type)}")
        return "{" + ", ".join(given) + "}"

    def _plain(self, kind: GraphQLInputType) -> str:
        return self._constant(getattr(kind, "of_type", kind) if is_non_null_type(kind) else kind, 1, False)

    def _variable(self, kind: Any, default: bool) -> str:
        """Return a variable for the type. A nullable variable is allowed where the place has a default."""
        rng = self._rng
        made = [name for name, (_, type_, _) in self._variables.items() if str(type_) == str(kind)]
        if made and rng.random() < 0.6:
            return f"${rng.choice(made)}"
        name = f"v{len(self._variables)}"
        declared: Any = kind
        if isinstance(kind, GraphQLNonNull):
            if default or rng.random() < 0.3:
                declared = kind.of_type
            of_type = kind.of_type
        else:
            of_type = kind
            if rng.random() < 0.2:
                declared = GraphQLNonNull(kind)
        # A nullable variable in a non-null place needs a default of its own or of the place.
        needs = isinstance(kind, GraphQLNonNull) and declared is not kind and not default
        with_default = needs or rng.random() < 0.3
        self._variables[name] = (str(declared), declared, self._constant(of_type, 1, False) if with_default else None)
        return f"${name}"

    def _value(self, kind: Any) -> Any:
        """Return a JSON value for the type."""
        rng = self._rng
        if isinstance(kind, GraphQLNonNull):
            return self._value(kind.of_type)
        if isinstance(kind, GraphQLList):
            return [self._value(kind.of_type) for _ in range(rng.randint(0, 2))]
        if isinstance(kind, GraphQLEnumType):
            return rng.choice(SENT["Color"])
        if not isinstance(kind, GraphQLInputObjectType):
            return rng.choice(SENT[kind.name])
        if kind.is_one_of:
            name = rng.choice(list(kind.fields))
            return {name: self._value(kind.fields[name].type)}
        return {
            name: self._value(field.type) for name, field in kind.fields.items() if name != "d" and rng.random() < 0.5
        }


def operation_text(made: ExecutedOperation) -> str:
    return f"{made.text}\n{json.dumps(made.variables)} {made.name} {made.options}"
