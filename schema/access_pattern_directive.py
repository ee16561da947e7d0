"""The directive that names the access patterns of a field in the schema."""

from collections.abc import Iterable

import strawberry
from strawberry.schema_directive import Location

from datastore.model.access_patterns import AccessPattern

ACCESS_PATTERN = "accessPattern"


@strawberry.schema_directive(
    locations=[Location.FIELD_DEFINITION],
    repeatable=True,
    name=ACCESS_PATTERN,
    description="An access pattern of the field: its id in docs/access-patterns/, the DynamoDB operations that it "
    "may use (none for a change feed), the table, and the index, if it reads one.",
)
class AccessPatternDirective:
    id: str
    operations: list[str]
    table: str
    index: str | None = strawberry.UNSET


def access_pattern_directives(patterns: Iterable[AccessPattern]) -> list[AccessPatternDirective]:
    """Return a directive for each access pattern. Patterns that differ in their keys alone share one."""
    return [
        AccessPatternDirective(id=id, operations=list(operations), table=table, index=index or strawberry.UNSET)
        for id, operations, table, index in dict.fromkeys(
            (pattern.id, tuple(pattern.operations), pattern.table.name, pattern.index) for pattern in patterns
        )
    ]
