"""The document cache: documents are parsed and validated once, and cached by their text."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import strawberry
from graphql import DocumentNode, FieldNode, GraphQLError, GraphQLSchema, OperationDefinitionNode, parse
from graphql.language import OperationType
from msgspec import Struct

from datastore.errors import DomainError, Forbidden
from datastore.model.access_patterns import CostModel
from datastore.model.identity import Identity, Role
from datastore.primitives.lru_cache import LruCache
from jit import CachedOperation, CompiledExecutor, operation_of
from jit.strawberry import StrawberryExecutor
from server.documents.cost.analysis import CostAnalysis, CostEstimate, CostFormula
from server.documents.cost.introspection import sizes_of
from server.documents.cost.refusals import TooCostly, TooManyIncrements, TooManyValues
from server.documents.incremental import DEFER, IncrementalDirectives, may_have_directives
from server.documents.limits import DocumentCounts, DocumentLimits, LimitExceeded, check_text, trusted_limits
from server.documents.request import Stage
from server.documents.settings import MAX_COST
from server.documents.validation import validation_errors

# The limits of the cache, which any client can fill. A parsed document takes some seventy times the memory of its text.
MAX_CACHED_DOCUMENTS = 256
MAX_CACHED_CHARACTERS = 500_000


class GatewayExecutor(StrawberryExecutor):
    """The executor of the gateway's schema. It compiles an operation at its second execution.

    The class of a record determines its type in the schema. Resolvers start at once, so that all reads of a level
    are in one batch.
    """

    eager = True
    types_by_class = True


class InterpretingExecutor(GatewayExecutor):
    """The executor that never compiles: graphql-core executes every operation."""

    compile_after = 0


class DocumentText(Struct, frozen=True):
    """The text of a document, and whether the document is trusted, because the operator has registered it."""

    text: str
    trusted: bool = False


class DocumentRejected(Exception):
    """A document, or the choice of an operation in it, is invalid. `errors` has the reasons."""

    def __init__(self, stage: Stage, errors: list[GraphQLError]) -> None:
        super().__init__(errors[0].message)
        self.stage = stage
        self.errors = errors


class PreparedOperation:
    """An operation of a valid document."""

    def __init__(self, document: "Document", node: OperationDefinitionNode) -> None:
        self.document = document
        self.node = node
        self.name: str | None = node.name.value if node.name else None
        self.kind: OperationType = node.operation
        # The document is valid, so the schema has the field.
        first = node.selection_set.selections[0]
        self.root_field = first.name.value if isinstance(first, FieldNode) else "(fragment)"
        self.variable_names = frozenset(part.variable.name.value for part in node.variable_definitions or ())

    @cached_property
    def incremental(self) -> IncrementalDirectives | None:
        """The directives `@defer` and `@stream`; None if there are none."""
        document = self.document
        return (may_have_directives(document.text) and IncrementalDirectives(document.node, self.node)) or None

    @cached_property
    def program(self) -> CachedOperation:
        """The operation as it is executed at once: compiled, or interpreted by graphql-core.

        It is executed without `@defer` and `@stream`.
        """
        document = self.document
        nodes = (document.node, self.node) if self.incremental is None else self.incremental.without()
        return operation_of(document.executor, document.costs.schema, *nodes)

    @cached_property
    def formula(self) -> CostFormula:
        """The formula of the estimate."""
        return self.document.costs.estimate(self.document.node, self.node)

    def estimate(self, variables: Mapping[str, Any]) -> CostEstimate:
        """Return the estimate for these variables, without reading from the store."""
        fixed = self.formula.fixed
        return self.formula.of(variables, self.document.now()) if fixed is None else fixed

    @cached_property
    def _parts(self) -> CostFormula:
        return self.document.costs.parts(self.document.node, self.node)

    def parts(self, variables: Mapping[str, Any]) -> float:
        """Return the largest number of deferred fragments and streamed lists in the response."""
        return self._parts.of(variables, self.document.now()).values

    async def load_statistics(self, variables: Mapping[str, Any]) -> None:
        """Read the statistics that the cost models of `estimate` need. Call it if `formula.modelled` has any."""
        await self.formula.load(variables, self.document.now())


class Document:
    """A parsed and valid document. `introspection_values` is the estimated number of values of its introspection."""

    def __init__(
        self,
        text: str,
        node: DocumentNode,
        costs: CostAnalysis,
        now: Callable[[], datetime],
        *,
        introspection_values: int | None,
        executor: type[CompiledExecutor],
        max_values: int,
        max_parts: int,
    ) -> None:
        self.text = text
        self.characters = len(text)
        self.max_values = max_values
        self.max_parts = max_parts
        self.executor = executor
        self.node = node
        self.costs = costs
        self.now = now
        self.introspects = introspection_values is not None
        self.introspection_values = introspection_values or 0
        self._operations = [
            PreparedOperation(self, part) for part in node.definitions if isinstance(part, OperationDefinitionNode)
        ]
        self._only = self._operations[0] if len(self._operations) == 1 else None

    @property
    def operations(self) -> Sequence[PreparedOperation]:
        """The operations, in the order of the text."""
        return self._operations

    @cached_property
    def hash(self) -> str:
        """The SHA-256 of the text. It identifies the document in logs."""
        return hashlib.sha256(self.text.encode(errors="surrogatepass")).hexdigest()

    def operation(self, name: str | None) -> PreparedOperation:
        """Return the operation of that name; without a name, the only operation. Raises `DocumentRejected`."""
        if name is None and self._only is not None:
            return self._only
        result = next((operation for operation in self._operations if name and operation.name == name), None)
        if result is not None:
            return result
        raise DocumentRejected(Stage.SELECTION, [GraphQLError(self._missing_message(name))])

    def _missing_message(self, name: str | None) -> str:
        if name is not None:
            return "The document has no operation of that name."
        if self._operations:
            return "The document has several operations: name one in operationName."
        return "The document has no operation."


class Documents:
    """The document cache: it parses and validates texts, and caches valid documents and rejections.

    Trusted documents have larger `limits` (see `limits.trusted_limits`), but the same limit of cost. Without
    `introspection` only admins may introspect the schema, and error messages have no suggestions. An operation with an
    estimate above `max_cost` read units is refused; `now` is the clock of estimates. Operations are compiled unless
    `compiles` is False. `models` are the cost models, by the names that fields use.
    """

    def __init__(
        self,
        schema: strawberry.Schema,
        limits: DocumentLimits | None = None,
        *,
        introspection: bool = True,
        max_cost: float = MAX_COST,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        compiles: bool = True,
        models: Mapping[str, CostModel] | None = None,
    ) -> None:
        self._executor = GatewayExecutor if compiles else InterpretingExecutor
        self.schema: GraphQLSchema = schema._schema
        self.costs = CostAnalysis(self.schema, models)
        #: Whether documents may have `@defer` and `@stream`.
        self.has_incremental_directives = self.schema.get_directive(DEFER) is not None
        self._sizes = sizes_of(self.schema)
        #: The read units above which an operation is refused.
        self.max_cost = max_cost
        self._now = now
        self._limits = limits or DocumentLimits()
        self._trusted_limits = trusted_limits(self._limits)
        self._introspection = introspection
        #: Whether messages must not suggest names of the schema.
        self.hides_suggestions = not introspection
        self._cached = LruCache[tuple[str, bool], Document | DocumentRejected](
            MAX_CACHED_DOCUMENTS, max_size=MAX_CACHED_CHARACTERS, size_of=lambda source, _: len(source[0])
        )
        self._pinned: dict[str, Document] = {}

    def pin(self, documents: Iterable[Document]) -> None:
        """Keep these documents without eviction. They replace the documents that were pinned before."""
        self._pinned = {document.text: document for document in documents}

    def check(self, text: str, *, trusted: bool = False) -> Document:
        """Return the document without caching it. Raises `DocumentRejected`."""
        result = self._prepare_uncached(text, self._limits_for(trusted))
        if isinstance(result, DocumentRejected):
            raise result
        return result

    def prepare(self, text: str, *, trusted: bool = False) -> Document:
        """Return the document, from the cache if possible. Raises `DocumentRejected`."""
        if self._pinned:
            pinned = self._pinned.get(text)
            if pinned is not None:
                return pinned
        key = (text, trusted)
        result = self._cached.get(key)
        if result is None:
            limits = self._limits_for(trusted)
            result = self._prepare_uncached(text, limits)
            if len(text) <= limits.characters:
                self._cached.put(key, result)
        if isinstance(result, DocumentRejected):
            raise DocumentRejected(result.stage, result.errors)
        return result

    def check_introspection(self, document: Document, identity: Identity | None) -> None:
        """Raise `DocumentRejected` if the document has introspection and the caller may not introspect."""
        if not document.introspects or self._introspection:
            return
        if identity is None or identity.role is not Role.ADMIN:
            refusal = Forbidden("Introspection is disabled: only admins may introspect the schema.")
            raise DocumentRejected(Stage.VALIDATION, [_located(refusal)])

    def estimate(self, operation: PreparedOperation, variables: Mapping[str, Any]) -> CostEstimate:
        """Return the estimate. Raises `TooCostly` or `TooManyValues` if it exceeds a limit."""
        estimate = operation.formula.fixed or operation.estimate(variables)
        if estimate.units > self.max_cost:
            raise TooCostly(estimate.units, self.max_cost)
        most_values = operation.document.max_values
        if estimate.values > most_values:
            raise TooManyValues(estimate.values, most_values)
        return estimate

    def check_parts(self, operation: PreparedOperation, variables: Mapping[str, Any]) -> None:
        """Raise `TooManyIncrements` if an incremental response may have too many parts."""
        parts = operation.parts(variables)
        if parts > operation.document.max_parts:
            raise TooManyIncrements(parts, operation.document.max_parts)

    def _prepare_uncached(self, text: str, limits: DocumentLimits) -> Document | DocumentRejected:
        if not text.strip():
            return DocumentRejected(Stage.PARSING, [GraphQLError("The query is empty.")])
        try:
            check_text(text, limits)
            # The specification forbids empty selection sets: https://spec.graphql.org/September2025/#SelectionSet
            node = parse(text, allow_empty_selection_sets=False)
        except LimitExceeded as refusal:
            return DocumentRejected(Stage.PARSING, [_located(refusal)])
        except GraphQLError as error:
            return DocumentRejected(Stage.PARSING, [_without_nodes(error)])
        try:
            return self._validated(text, node, limits)
        except LimitExceeded as refusal:
            return DocumentRejected(Stage.VALIDATION, [_located(refusal)])
        except RecursionError:
            return DocumentRejected(Stage.VALIDATION, [GraphQLError("The document is nested too deeply.")])

    def _validated(self, text: str, node: DocumentNode, limits: DocumentLimits) -> Document | DocumentRejected:
        counts = DocumentCounts(node, self._sizes)
        counts.check(limits)
        errors = validation_errors(self.schema, node, text, limits, suggesting=self._introspection)
        if errors:
            return DocumentRejected(Stage.VALIDATION, [_without_nodes(error) for error in errors])
        return Document(
            text,
            node,
            self.costs,
            self._now,
            introspection_values=counts.counts["introspection_values"] if counts.introspects else None,
            executor=self._executor,
            max_values=limits.values,
            max_parts=limits.parts,
        )

    def _limits_for(self, trusted: bool) -> DocumentLimits:
        return self._trusted_limits if trusted else self._limits


def _located(refusal: DomainError) -> GraphQLError:
    return GraphQLError(str(refusal), original_error=refusal)


def _without_nodes(error: GraphQLError) -> GraphQLError:
    """Return the error with its locations but without its nodes, which would keep the whole document in memory."""
    error.nodes = None
    return error
