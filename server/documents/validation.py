"""Validation of documents with graphql-core's rules and a faster visitor.

The rules and their messages are graphql-core's, except the rule that compares fields (see `overlapping_fields`).
graphql-core's visitor calls every rule at every node, which takes twice as long.
"""

import re
from collections.abc import Callable, Collection
from functools import cache, cached_property
from typing import Any

from graphql import DocumentNode, GraphQLError, GraphQLInputType, GraphQLSchema, TypeInfo
from graphql.language import (
    FragmentDefinitionNode,
    Node,
    OperationDefinitionNode,
    ValueNode,
    VariableNode,
    Visitor,
    VisitorAction,
)
from graphql.pyutils import RefMap
from graphql.utilities.validate_input_value import validate_input_literal
from graphql.validation import ValidationContext, ValidationRule, ValuesOfCorrectTypeRule
from graphql.validation.specified_rules import specified_rules
from graphql.validation.validate import ValidationAbortedError
from graphql.validation.validation_context import VariableUsage

from server.documents.incremental import DEFER, may_have_directives
from server.documents.limits import DocumentLimits, LimitExceeded
from server.documents.overlapping_fields import OverlapCheck, TooComplex

MAX_ERRORS = 20
# The work of all errors. That of one error is the characters of its message, which may quote a whole value, and a step
# per LINES_PER_STEP lines of the text, which are counted for its location.
MAX_ERROR_WORK = 5_000
LINES_PER_STEP = 4
# The number of errors with suggestions: a suggestion takes up to 2 ms.
SUGGESTING = 2

# Marks: a document that does not contain the mark cannot violate these rules. Rules without a mark are always applied.
MARKS = {
    "$": (
        "UniqueVariableNamesRule",
        "NoUndefinedVariablesRule",
        "NoUnusedVariablesRule",
        "VariablesAreInputTypesRule",
        "VariablesInAllowedPositionRule",
    ),
    "@": ("KnownDirectivesRule", "UniqueDirectivesPerLocationRule"),
    "fragment": ("UniqueFragmentNamesRule", "NoUnusedFragmentsRule", "NoFragmentCyclesRule"),
    "...": ("KnownFragmentNamesRule", "PossibleFragmentSpreadsRule", "FragmentsOnCompositeTypesRule"),
    "subscription": ("SingleFieldSubscriptionsRule",),
}
# Rules that are replaced: `overlapping_fields` compares fields, and `limits` limits introspection.
REPLACED = ("OverlappingFieldsCanBeMergedRule", "MaxIntrospectionDepthRule")
# The rules for `@defer` and `@stream`. KnownDirectivesRule rejects the directives of a schema that does not have them.
INCREMENTAL = (
    "DeferStreamDirectiveOnRootField",
    "DeferStreamDirectiveOnValidOperationsRule",
    "DeferStreamDirectiveLabel",
    "StreamDirectiveOnListField",
)
CHILDREN: dict[str, tuple[str, ...]] = {
    "document": ("definitions",),
    "operation_definition": ("variable_definitions", "directives", "selection_set"),
    "fragment_definition": ("type_condition", "directives", "selection_set"),
    "variable_definition": ("variable", "type", "default_value", "directives"),
    "selection_set": ("selections",),
    "field": ("arguments", "directives", "selection_set"),
    "fragment_spread": ("directives",),
    "inline_fragment": ("type_condition", "directives", "selection_set"),
    "directive": ("arguments",),
    "argument": ("value",),
    "list_value": ("values",),
    "object_value": ("fields",),
    "object_field": ("value",),
    "list_type": ("type",),
    "non_null_type": ("type",),
}
LEAVES = (
    *("variable", "named_type", "enum_value", "null_value"),
    *("int_value", "float_value", "string_value", "boolean_value"),
)
Method = Callable[..., Any]


def validation_errors(
    schema: GraphQLSchema, document: DocumentNode, text: str, limits: DocumentLimits, *, suggesting: bool
) -> list[GraphQLError]:
    """Return the first errors of the document, about `MAX_ERRORS`. `suggesting` adds suggestions to messages.

    Raises `LimitExceeded` if comparing the fields or the uses of variables takes too many steps.
    """
    error_list = _ErrorList(1 + text.count("\n") + text.count("\r"), suggesting)
    try:
        rules = rules_for(text, incremental=schema.get_directive(DEFER) is not None)
        _DocumentVisitor(schema, document, error_list).run(rules, limits.variable_uses)
        if not error_list.errors:
            _compare(schema, document, error_list, limits)
    except ValidationAbortedError as aborted:
        error_list.errors.append(aborted.with_traceback(None))
    return error_list.errors


def _compare(schema: GraphQLSchema, document: DocumentNode, error_list: "_ErrorList", limits: DocumentLimits) -> None:
    merging = OverlapCheck(schema, document, limits.merging)
    try:
        for error in merging.conflicts():
            error_list.add(error)
    except TooComplex:
        raise LimitExceeded("merging", limits.merging, merging.steps) from None


def rules_for(text: str, *, incremental: bool = False) -> list[type[ValidationRule]]:
    """Return the rules that a document with this text can violate. A schema with `@defer` is `incremental`."""
    idle = {rule for mark, rules in MARKS.items() if mark not in text for rule in rules}
    if not (incremental and may_have_directives(text)):
        idle.update(INCREMENTAL)
    return [rule for rule in _rules() if rule.__name__ not in idle]


@cache
def _rules() -> list[type[Any]]:
    rules = [rule for rule in specified_rules if rule.__name__ not in REPLACED]
    return [_LiteralsRule if rule is ValuesOfCorrectTypeRule else rule for rule in rules]


class _LiteralsRule(ValuesOfCorrectTypeRule):
    """graphql-core's rule for literals, with the argument and the location added to the errors of custom scalars."""

    def is_valid_value_node(self, node: ValueNode, input_type: GraphQLInputType | None) -> VisitorAction:
        if input_type:

            def report(error: GraphQLError, path: list[str | int]) -> None:
                self.report_error(error if error.nodes else self._located(error, node, path))

            validate_input_literal(node, input_type, report, None, None, self.context.hide_suggestions)
        return self.SKIP

    def _located(self, error: GraphQLError, node: ValueNode, path: list[str | int]) -> GraphQLError:
        argument = self.context.get_argument()
        owner = self.context.get_directive() or self.context.get_field_def()
        names = [name for name, known in owner.args.items() if known is argument] if owner else []
        if not names:  # the default value of a variable
            return GraphQLError(error.message, node, original_error=error.original_error)
        name = ".".join(map(str, (*names, *path)))
        message = f"Argument '{name}' has invalid value: {error.message}"
        return GraphQLError(message, node, original_error=error.original_error)


_SUGGESTION = re.compile(r" Did you mean [^?]*\?$")


class _ErrorList:
    """The errors so far, with limits of their number and work."""

    def __init__(self, lines: int, suggesting: bool) -> None:
        self.errors: list[GraphQLError] = []
        self._lines = lines
        self._suggesting = suggesting
        self._work = 0

    def add(self, error: GraphQLError) -> None:
        if not self._suggesting:  # one of the rules adds suggestions even if they are disabled
            error.message = _SUGGESTION.sub("", error.message)
        self.errors.append(error)
        self._work += len(error.message) + self._lines // LINES_PER_STEP
        if len(self.errors) >= MAX_ERRORS or self._work > MAX_ERROR_WORK:
            raise ValidationAbortedError("The document has further errors: validation was aborted.")

    @property
    def suggesting(self) -> bool:
        return self._suggesting and len(self.errors) < SUGGESTING


class _RuleContext(ValidationContext):
    """The context of the rules. `_DocumentVisitor` collects the variables of a definition for it."""

    def __init__(self, visitor: "_DocumentVisitor", error_list: _ErrorList, hides: bool, most_uses: int) -> None:
        super().__init__(visitor.schema, visitor.document, visitor.types, error_list.add)
        self._uses, self._most_uses = 0, most_uses
        self._visitor = visitor
        self._error_list = error_list
        self._hides = hides
        # These maps compare keys by identity: hashing a node hashes all nodes beneath it.
        self._variable_usages = RefMap()  # type: ignore[assignment]
        self._recursive_variable_usages = RefMap()  # type: ignore[assignment]
        self._fragment_spreads = RefMap()  # type: ignore[assignment]

    @property
    def hide_suggestions(self) -> bool:
        return self._hides or not self._error_list.suggesting

    def get_variable_usages(self, node: Any) -> list[VariableUsage]:
        usages: list[VariableUsage] | None = self._variable_usages.get(node)
        if usages is None:
            usages = self._variable_usages[node] = self._visitor.usages(node)
        return usages

    def get_recursive_variable_usages(self, operation: OperationDefinitionNode) -> list[VariableUsage]:
        """Return the usages of an operation, including its fragments. Raises `LimitExceeded`."""
        is_known = self._recursive_variable_usages.get(operation) is not None
        usages = super().get_recursive_variable_usages(operation)
        if not is_known:
            self._uses += len(usages)
            if self._uses > self._most_uses:
                raise LimitExceeded("variable_uses", self._most_uses, self._uses)
        return usages


class _DocumentVisitor:
    """A visitor that walks a document once, and calls a rule only at the kinds of nodes for which it has a method."""

    def __init__(self, schema: GraphQLSchema, document: DocumentNode, error_list: _ErrorList) -> None:
        self.schema = schema
        self.document = document
        self.types = TypeInfo(schema)
        self._error_list = error_list
        self._usages = _Usages(self.types)
        self._typing = {
            kind: (getattr(self.types, f"enter_{kind}", None), getattr(self.types, f"leave_{kind}", None))
            for kind in (*CHILDREN, *LEAVES)
        }

    def run(self, rules: Collection[type[ValidationRule]], most_uses: int) -> None:
        """Apply the rules. Raises `ValidationAbortedError` beyond the limits of errors, and `LimitExceeded`."""
        context, quiet = (_RuleContext(self, self._error_list, hides, most_uses) for hides in (False, True))
        visitors: list[Visitor] = [rule(quiet if rule.__name__ == "KnownTypeNamesRule" else context) for rule in rules]
        self._traverse(self.document, self._table(visitors), len(visitors))

    def usages(self, node: OperationDefinitionNode | FragmentDefinitionNode) -> list[VariableUsage]:
        """Return the variables in a definition, with their positions."""
        self._usages.usages = []
        self._traverse(node, self._usages_table, 1)
        return self._usages.usages

    @cached_property
    def _usages_table(self) -> "Table":
        return self._table([self._usages])

    def _table(self, visitors: list[Visitor]) -> "Table":
        return {kind: _KindMethods(self._typing[kind], kind, visitors) for kind in self._typing}

    def _traverse(self, start: Node, table: "Table", visitors: int) -> None:
        skipping: list[Node | None] = [None] * visitors
        skipped: list[Node] = []
        ancestors: list[Node] = []

        def visit(node: Node, parent: Node | None) -> None:
            methods = table[node.kind]
            if methods.enter_types is not None:
                methods.enter_types(node)
            for index, enter in methods.enters:
                # No rule edits a node, so a result other than None skips the nodes beneath.
                if skipping[index] is None and enter(node, None, parent, (), ancestors) is not None:
                    skipping[index] = node
                    if not (skipped and skipped[-1] is node):
                        skipped.append(node)
            if methods.children:
                ancestors.append(node)
                for name in methods.children:
                    child = getattr(node, name)
                    if isinstance(child, tuple):
                        for element in child:
                            visit(element, node)
                    elif child is not None:
                        visit(child, node)
                ancestors.pop()
            for index, leave in methods.leaves:
                if skipping[index] is None:
                    leave(node, None, parent, (), ancestors)
            if skipped and skipped[-1] is node:
                skipped.pop()
                skipping[:] = [None if at is node else at for at in skipping]
            if methods.leave_types is not None:
                methods.leave_types()

        visit(start, None)


class _Usages(Visitor):
    """A collector of the uses of variables. It skips their definitions."""

    def __init__(self, types: TypeInfo) -> None:
        super().__init__()
        self.usages: list[VariableUsage] = []
        self._types = types

    def enter_variable_definition(self, *_: Any) -> VisitorAction:
        return self.SKIP

    def enter_variable(self, node: VariableNode, *_: Any) -> None:
        types = self._types
        self.usages.append(
            VariableUsage(node, types.get_input_type(), types.get_parent_input_type(), types.get_default_value(), None)
        )


class _KindMethods:
    """The methods to call at a node of one kind."""

    __slots__ = ("children", "enter_types", "enters", "leave_types", "leaves")

    def __init__(self, typing: tuple[Method | None, Method | None], kind: str, visitors: list[Visitor]) -> None:
        self.enter_types, self.leave_types = typing
        self.children = CHILDREN.get(kind, ())
        self.enters = _methods(f"enter_{kind}", visitors)
        self.leaves = _methods(f"leave_{kind}", visitors)


Table = dict[str, _KindMethods]


def _methods(name: str, visitors: list[Visitor]) -> tuple[tuple[int, Method], ...]:
    return tuple((index, getattr(visitor, name)) for index, visitor in enumerate(visitors) if hasattr(visitor, name))
