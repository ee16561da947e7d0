"""Limits of documents: the counts are taken in one pass, which visits each fragment once however often it is spread."""

import re
from dataclasses import dataclass, field, fields, replace
from math import ceil
from typing import Any

from graphql.language import (
    DocumentNode,
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    InlineFragmentNode,
    OperationDefinitionNode,
    SelectionSetNode,
)
from strawberry.utils.str_converters import to_camel_case

from datastore.errors import BadUserInput
from server.documents.cost.introspection import Sizes, Times

INTROSPECTION = ("__schema", "__type")
# The field of a federation subgraph with the text of the schema, and the values of introspection that it counts as: a
# response of 150 KB.
SUBGRAPH_FIELD, SUBGRAPH_VALUES = "_service", 20_000
# Fields of introspection that are lists: nesting them multiplies the response.
TYPE_LISTS = frozenset({"types", "fields", "inputFields", "interfaces", "possibleTypes", "enumValues", "args"})
MAX_REPORTED = 1_000_000
# Every alternative matches once its first character does. Otherwise the search would start again at each quote, which
# takes quadratic time.
_COUNTED = re.compile(
    r'"""(?:\\"""|[^"]|"(?!""))*(?:"""|\Z)|"(?:[^"\\\n\r]|\\.)*"?|#[^\n\r]*|\w+|\.\.\.|[^\s,\ufeff]', re.S
)


def _limit(default: int, counted: str) -> Any:
    """Declare a limit. `counted` is its object in messages."""
    return field(default=default, metadata={"counted": counted})


@dataclass(frozen=True, slots=True)
class DocumentLimits:
    """The limits of a document. Unless noted, a fragment counts once, however often it is spread."""

    #: Characters, and tokens including comments, are checked before the text is parsed.
    characters: int = _limit(32_768, "characters")
    tokens: int = _limit(1_000, "tokens")
    operations: int = _limit(10, "operations")
    variables: int = _limit(100, "variables")
    variable_uses: int = _limit(
        2_000, "uses of variables, counting those of a fragment for each operation that uses it"
    )
    root_fields: int = _limit(50, "fields at the root")
    selections: int = _limit(500, "selections")
    fields: int = _limit(5_000, "fields, counting those of a fragment at each spread")
    #: The levels of fields, including those of spread fragments.
    depth: int = _limit(16, "levels of fields")
    aliases: int = _limit(100, "aliases")
    directives: int = _limit(50, "directives")
    fragments: int = _limit(100, "fragments")
    spreads: int = _limit(250, "spreads of fragments")
    #: The limits of introspection, the selections beneath `__schema` and `__type`.
    introspection_fields: int = _limit(400, "fields of introspection")
    introspection_lists: int = _limit(16, "lists of types in its introspection")
    introspection_nesting: int = _limit(3, "nested lists of types in its introspection")
    introspection_depth: int = _limit(20, "levels of introspection")
    #: The values that introspection returns, estimated from the sizes of the schema.
    introspection_values: int = _limit(60_000, "values that its introspection returns")
    merging: int = _limit(4_000, "steps to compare its fields with equal response names")
    #: The values of a response, estimated from the sizes of its lists and pages. These may depend on variables.
    values: int = _limit(25_000, "values in its response, by the sizes of its lists and pages")
    #: The deferred fragments and streamed lists of a response, estimated from the same sizes.
    parts: int = _limit(1_000, "deferred fragments and streamed lists in its response, by the sizes of its lists")


# The limits of trusted documents, which stay in memory in parsed form. An item of the table has at most 400 KB, and a
# request at most 256 KB.
TRUSTED_FACTOR, TRUSTED_DEPTH, TRUSTED_CHARACTERS = 10, 32, 250_000
# The texts of what is counted, by limit.
NAMES = {limit.name: limit.metadata["counted"] for limit in fields(DocumentLimits)}


def parse_limits(text: str) -> DocumentLimits:
    """Return the default limits with the overrides of a text such as `tokens=2000, rootFields=80`.

    Raises `ValueError` for an invalid text.
    """
    names = {to_camel_case(name): name for name in NAMES}
    overrides: dict[str, int] = {}
    for part in text.split(","):
        name, _, number = (piece.strip() for piece in part.partition("="))
        if name not in names:
            raise ValueError(f"{name[:100]!r} is not a limit; the limits are {', '.join(names)}")
        if not re.fullmatch("[1-9][0-9]{0,8}", number):
            raise ValueError(f"{name} must be a whole number of 1 to 999,999,999, not {number[:100]!r}")
        overrides[names[name]] = int(number)
    return replace(DocumentLimits(), **overrides)


def trusted_limits(limits: DocumentLimits) -> DocumentLimits:
    """Return the limits of trusted documents: ten times as large, and twice as deep."""
    larger = {name: TRUSTED_FACTOR * getattr(limits, name) for name in NAMES if not name.startswith("introspection")}
    larger["depth"] = max(limits.depth, TRUSTED_DEPTH)
    larger["characters"] = max(limits.characters, TRUSTED_CHARACTERS)
    return replace(limits, **larger)


class LimitExceeded(BadUserInput):
    """A document exceeds a limit. `extensions` have the `measure`, its `limit` and the count `found`."""

    def __init__(self, measure: str, limit: int, found: int) -> None:
        super().__init__(
            f"The document may have at most {limit:,} {NAMES[measure]}; it has {_shown(found)}.",
            measure=to_camel_case(measure),
            limit=limit,
            found=min(found, MAX_REPORTED),
        )


def _shown(found: int) -> str:
    return f"{found:,}" if found <= MAX_REPORTED else f"more than {MAX_REPORTED:,}"


def check_text(text: str, limits: DocumentLimits) -> None:
    """Raise `LimitExceeded` for a text with too many characters or tokens."""
    if len(text) > limits.characters:
        raise LimitExceeded("characters", limits.characters, len(text))
    found = sum(1 for _ in _COUNTED.finditer(text))
    if found > limits.tokens:
        raise LimitExceeded("tokens", limits.tokens, found)


@dataclass(slots=True)
class Weight:
    """The counts of a selection set, including its fragments."""

    #: The fields on its top level.
    roots: int = 0
    fields: int = 0
    depth: int = 0
    #: The lists of types in introspection.
    lists: int = 0
    #: The levels of nested lists of types in introspection.
    nesting: int = 0
    #: The estimated values of introspection for an average type.
    mean: float = 0.0
    #: The estimated values of introspection for the largest type.
    most: float = 0.0

    def add_siblings(self, other: "Weight") -> None:
        """Add a selection set on the same level."""
        self.roots += other.roots
        self.fields += other.fields
        self.lists += other.lists
        self.mean += other.mean
        self.most += other.most
        self.depth = max(self.depth, other.depth)
        self.nesting = max(self.nesting, other.nesting)

    def add_field(self, beneath: "Weight", is_list: bool, times: Times) -> None:
        """Add a field, and the selections beneath it for each of its objects (`times`)."""
        self.mean += 1 + times.mean * (beneath.most if times.selects else beneath.mean)
        self.most += 1 + times.most * beneath.most
        self.roots += 1
        self.fields += 1 + beneath.fields
        self.lists += is_list + beneath.lists
        self.depth = max(self.depth, 1 + beneath.depth)
        self.nesting = max(self.nesting, is_list + beneath.nesting)


class DocumentCounts:
    """The counts of a document, by the names of `DocumentLimits`."""

    def __init__(self, document: DocumentNode, sizes: Sizes) -> None:
        self._sizes = sizes
        self.counts: dict[str, int] = dict.fromkeys(NAMES, 0)
        #: The number of selections that were visited.
        self.visited = 0
        #: Whether the document selects introspection fields, or the schema of the subgraph.
        self.introspects = False
        self._fragments = {
            part.name.value: part for part in document.definitions if isinstance(part, FragmentDefinitionNode)
        }
        self._weights: dict[str, Weight] = {}
        for part in document.definitions:
            if isinstance(part, FragmentDefinitionNode):
                self.counts["fragments"] += 1
                self.counts["directives"] += len(part.directives or ())
                # Unused fragments count as well, because they are validated.
                self._fragment(part.name.value)
            elif isinstance(part, OperationDefinitionNode):
                self._operation(part)

    def check(self, limits: DocumentLimits) -> None:
        """Raise `LimitExceeded` for the first limit that the document exceeds."""
        for measure, found in self.counts.items():
            if found > getattr(limits, measure):
                raise LimitExceeded(measure, getattr(limits, measure), found)

    def _operation(self, operation: OperationDefinitionNode) -> None:
        self.counts["operations"] += 1
        self.counts["variables"] += len(operation.variable_definitions or ())
        self.counts["directives"] += len(operation.directives or ())
        for variable in operation.variable_definitions or ():
            self.counts["directives"] += len(variable.directives or ())
        weight = self._weight(operation.selection_set)
        self._raise_to("root_fields", weight.roots)
        self._raise_to("fields", weight.fields)
        self._raise_to("depth", weight.depth)

    def _raise_to(self, measure: str, found: int) -> None:
        self.counts[measure] = max(self.counts[measure], found)

    def _weight(self, selection_set: SelectionSetNode) -> Weight:
        weight = Weight()
        for selection in selection_set.selections:
            self.visited += 1
            self.counts["selections"] += 1
            self.counts["directives"] += len(selection.directives or ())
            if isinstance(selection, FieldNode):
                self._field(selection, weight)
            elif isinstance(selection, InlineFragmentNode):
                weight.add_siblings(self._weight(selection.selection_set))
            elif isinstance(selection, FragmentSpreadNode):
                self.counts["spreads"] += 1
                weight.add_siblings(self._fragment(selection.name.value))
        return weight

    def _field(self, field: FieldNode, weight: Weight) -> None:
        name = field.name.value
        if field.alias is not None:
            self.counts["aliases"] += 1
        beneath = self._weight(field.selection_set) if field.selection_set else Weight()
        if name in INTROSPECTION:
            self.introspects = True
            self.counts["introspection_fields"] += beneath.fields
            self.counts["introspection_lists"] += beneath.lists
            values = beneath.mean if name == "__schema" else beneath.most
            self.counts["introspection_values"] += ceil(min(values, MAX_REPORTED + 1))
            self._raise_to("introspection_nesting", beneath.nesting)
            self._raise_to("introspection_depth", beneath.depth)
            beneath = Weight()
        elif name == SUBGRAPH_FIELD:
            self.introspects = True
            self.counts["introspection_values"] += SUBGRAPH_VALUES
        weight.add_field(beneath, name in TYPE_LISTS, self._sizes.times(name))

    def _fragment(self, name: str) -> Weight:
        """Return the weight of a fragment. Inside itself a fragment has weight 0: validation reports the cycle."""
        if name not in self._weights:
            self._weights[name] = Weight()
            fragment = self._fragments.get(name)
            if fragment is not None:
                self._weights[name] = self._weight(fragment.selection_set)
        return self._weights[name]
