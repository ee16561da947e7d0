"""The page `docs/access-patterns.md`, generated from the declarations."""

from datastore.keyspace import PATTERNS, TABLES
from datastore.model.access_patterns import AccessPattern, Index, Table

HEAD = """# Access patterns

Generated from the declarations in `datastore/keyspace/` (`make docs`); a test fails when this page is stale.

Each pattern is one read or write of the tables. Its resolver issues these DynamoDB operations and no others.

- operations: GetItem means a point read. The point reads of one event-loop tick are sent together, as GetItem for one
  key and as BatchGetItem for several.
- who: `any` needs no login; `user` is the signed-in user, for their own data; `admin` and `system` are roles in the
  token, and may read what a user may read; `owner` is the signed-in user alone, for data that neither `admin` nor
  `system` may read; `internal` has no field in the API.
- shared for some milliseconds: the item also serves other operations of the same process for that time.
- when slow: the overflow policy of a subscription for a subscriber that does not keep up. A client can choose another
  policy with `whenSlow`, unless the policy is marked `always`.
"""

PROJECTIONS = {"ALL": "items", "COUNT": "a count, or items", "SELECTED": "selected attributes"}


def page() -> str:
    """Return the page in Markdown."""
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
        "| id | question | fields | operations | index | key, filter and condition | returns | reads | who |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *head, *rows, ""])


def _names(*attributes: str | None) -> str:
    return ", ".join(f"`{name}`" for name in attributes if name)


def _projected(index: Index) -> str:
    return index.projection if isinstance(index.projection, str) else ", ".join(index.projection)


def _row(pattern: AccessPattern) -> str:
    clauses = [f"`{text}`" for text in (pattern.key, *pattern.filter, pattern.condition) if text]
    hides_expired = pattern.hidden_ttl and (pattern.reads or pattern.condition or "DeleteItem" in pattern.operations)
    clauses += ["expired items are absent"] if hides_expired else []
    clauses += [f"if the argument is given: `{text}`" for text in pattern.guard]
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
    return f", when slow {pattern.when_slow.name}{'' if pattern.client_may_choose else ' always'}"


def _consistency(pattern: AccessPattern) -> str:
    if not pattern.reads:
        return ""
    if pattern.consistent:
        return "consistent"
    return "eventually consistent" + (f", shared for {pattern.shared_ms} ms" if pattern.shared_ms else "")
