"""Prints the access patterns as the page `docs/access-patterns.md`: `python -m datastore.keyspace`."""

from datastore.keyspace import PATTERNS, TABLES
from datastore.model.access_patterns import AccessPattern, Index, Table

HEAD = """# Access patterns

Generated from the declarations in `datastore/keyspace/` (`make docs`); a test fails when this page is stale.

Each pattern is one question the tables can be asked: its resolver issues these DynamoDB operations and no others.
GetItem stands for a point read: reads of one tick go out together, as GetItem for one key and BatchGetItem for more.
Who: `any` needs no login; `user` is the signed-in user, for their own data; `admin` and `system` are the roles of
tokens, and may read what a user may; `internal` has no field.
Shared for some milliseconds: an item that was read serves other operations of the process, too.
When slow: what happens to a subscriber that does not keep up; `whenSlow` asks for something else where it may.
"""

PROJECTIONS = {"ALL": "items", "COUNT": "a count, or items", "SELECTED": "selected attributes"}


def page() -> str:
    """The page, in Markdown."""
    return "\n".join([HEAD, *(_table(table) for table in TABLES)])


def _table(table: Table) -> str:
    lines = [f"## `{table.name}`", "", f"Key {_names(table.partition, table.sort)}."]
    lines += [
        f"Index `{index.name}`: {_names(index.partition, index.sort)}, projection {_projected(index)}."
        for index in table.indexes
    ]
    lines += [f"TTL `{table.ttl}`."] if table.ttl else []
    lines += [f"Stream {table.stream}."] if table.stream else []
    rows = [_row(pattern) for pattern in PATTERNS if pattern.table is table]
    head = [
        "",
        "| id | question | fields | operations | index | key, filter and condition | brings | reads | who |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *head, *rows, ""])


def _names(*attributes: str | None) -> str:
    return ", ".join(f"`{name}`" for name in attributes if name)


def _projected(index: Index) -> str:
    return index.projection if isinstance(index.projection, str) else ", ".join(index.projection)


def _row(pattern: AccessPattern) -> str:
    clauses = [f"`{text}`" for text in (pattern.key, *pattern.filter, pattern.condition) if text]
    clauses += [f"where it is given: `{text}`" for text in pattern.guard]
    cells = (
        pattern.id,
        pattern.question,
        ", ".join(f"`{field}`" for field in pattern.fields),
        (" + ".join(pattern.operations) or "change feed") + _slowness(pattern),
        f"`{pattern.index}`" if pattern.index else "",
        "<br>".join(clauses),
        PROJECTIONS[pattern.projection] if "Query" in pattern.operations else "",
        _consistency(pattern),
        ", ".join(who.value for who in (pattern.who, *pattern.also)),
    )
    return f"| {' | '.join(cells)} |"


def _slowness(pattern: AccessPattern) -> str:
    if pattern.when_slow is None:
        return ""
    return f", when slow {pattern.when_slow.name}{'' if pattern.chooses else ' always'}"


def _consistency(pattern: AccessPattern) -> str:
    if not pattern.reads:
        return ""
    if pattern.consistent:
        return "consistent"
    return "eventually consistent" + (f", shared for {pattern.shared_ms} ms" if pattern.shared_ms else "")


if __name__ == "__main__":
    print(page(), end="")
