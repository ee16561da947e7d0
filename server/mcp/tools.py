"""Tools: trusted documents as clients of the Model Context Protocol see and call them."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from graphql.language import OperationType

from datastore.errors import BadUserInput
from server.documents.persisted.tool_marks import MarkedDocument
from server.mcp.json_schema import JsonSchema, arguments_schema
from server.mcp.result_schema import result_schema


class ResultTooLarge(BadUserInput):
    """The result of a tool has more bytes than its limit, which `extensions` hold as `limit`."""

    def __init__(self, size: int, limit: int, *, wrote: bool) -> None:
        super().__init__(
            f"The result has {size:,} bytes, and this tool may return at most {limit:,}: ask for fewer entries, "
            "such as a smaller page or a shorter time window."
            + (" The mutation was executed: do not repeat it." if wrote else ""),
            measure="resultBytes",
            limit=limit,
            found=size,
        )


class Tool:
    """A trusted document that clients call by the name in its mark."""

    def __init__(self, marked: MarkedDocument) -> None:
        self.mark = marked.mark
        self.document_id = marked.document_id
        self._operation = marked.operation

    @property
    def is_query(self) -> bool:
        return self._operation.kind is OperationType.QUERY

    @cached_property
    def input_schema(self) -> JsonSchema:
        """The schema of the arguments, which are the operation's variables."""
        document = self._operation.document
        return arguments_schema(document.costs.schema, document.node, self._operation.node)

    @cached_property
    def output_schema(self) -> JsonSchema:
        """The schema of a result without errors, which is the operation's data."""
        document = self._operation.document
        return result_schema(document.costs.schema, document.node, self._operation.node)

    def check_arguments(self, arguments: Mapping[str, Any]) -> None:
        """Raise `BadUserInput` for an argument that the tool does not have. The operation checks the others."""
        known = self._operation.variable_names
        unknown = next((name for name in arguments if name not in known), None)
        if unknown is not None:
            names = ", ".join(sorted(known)) or "none"
            message = f"The tool {self.mark.name} has no argument `{unknown[:100]}`. Its arguments: {names}."
            raise BadUserInput(message, field=unknown[:100])


class Toolset(Mapping[str, Tool]):
    """The tools of a manifest by name, in its order."""

    def __init__(self, marked: Sequence[MarkedDocument]) -> None:
        self.marked = marked
        self._tools = {document.mark.name: Tool(document) for document in marked}

    def __getitem__(self, name: str) -> Tool:
        return self._tools[name]

    def __iter__(self) -> Any:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)
