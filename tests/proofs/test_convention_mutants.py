"""`make conventions` finds the mistakes of an engineer who adds a system, and says what to write where.

The mistakes are made in a copy of the project, in the files of a system that `gateway.py new` has generated.
"""

import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.project_copies import MAKE, attempt_in, project, run_in

__all__ = ["project"]  # a fixture

KEYS, RESOLVERS = "datastore/keyspace/reminders.py", "resolvers/reminders.py"
CONTRACT = "tests/support/contract/reminders.py"
LIST_KEY = """    key="#userId = :partition",
"""


class Mistake(NamedTuple):
    """A change of a file, and a text in the message that reports it."""

    path: str
    text: str
    replacement: str
    message: str


MISTAKES = {
    "the user is not bound into the cursor": Mistake(
        RESOLVERS,
        "Reminder.decoder, owner=partition[0])",
        'Reminder.decoder, owner=partition[0], replaces={"userId"})',
        "State the binding of the new list `reminders` in `cursors` of the page of its system",
    ),
    "expired items stay": Mistake(
        KEYS,
        """    ttl="expiresAt",
""",
        "",
        "Declare Table(name='reminders', ttl='expiresAt') in datastore/keyspace/.",
    ),
    "the cost ignores an argument": Mistake(
        RESOLVERS,
        "user_id: UserId, **paging",
        "user_id: UserId, search: str | None = None, **paging",
        "The cost of the field with the resolver `reminders` (REMINDER-2) ignores `search`",
    ),
    "a filter names a reserved word": Mistake(
        KEYS,
        LIST_KEY,
        f"""{LIST_KEY}    filter=("date > :since",),
""",
        "DynamoDB reserves `date`. Write `#date` in datastore/keyspace/.",
    ),
    "an expected version is not documented": Mistake(
        "docs/mutations.md",
        "| `updateReminder` | in the input | updates |\n",
        "",
        "a row for `updateReminder`",
    ),
    "a caller is not authorized": Mistake(
        RESOLVERS,
        """    require(info.context.identity, keys.REMINDER, owner=key[0])
""",
        "",
        "Authorize each field with `require` and its pattern.",
    ),
    "a pattern is for anyone": Mistake(
        KEYS,
        """    "The reminders of a user, newest first",
    Who.USER""",
        """    "The reminders of a user, newest first",
    Who.ANY""",
        "row 'reminders': state the ids and callers of the patterns",
    ),
    "a repeated request creates another id": Mistake(
        RESOLVERS,
        "context.new_id(info)",
        "context.services.new_id()",
        "ids from `context.new_id(info)`",
    ),
    "the expected version is not compared": Mistake(
        KEYS,
        """    guard=version_guard(),
""",
        "",
        "Declare `guard=version_guard()` at its access pattern in datastore/keyspace/.",
    ),
    "a field is not in the contract": Mistake(
        CONTRACT,
        '"updateReminder",',
        '"updateReminders",',
        "row 'updateReminders': the schema has no such field",
    ),
    "the documentation is outdated": Mistake(
        KEYS,
        '"Delete a reminder"',
        '"Remove a reminder"',
        "Run `make docs`.",
    ),
}


# Mistakes that do not hide each other are made at once. One without a schema hides all others.
TOGETHER = (
    (
        "the user is not bound into the cursor",
        "expired items stay",
        "a filter names a reserved word",
        "an expected version is not documented",
        "a caller is not authorized",
        "a pattern is for anyone",
        "a repeated request creates another id",
        "the expected version is not compared",
        "the documentation is outdated",
    ),
    ("the cost ignores an argument",),
    ("a field is not in the contract",),
)


def test_each_mistake_is_made() -> None:
    assert sorted(name for names in TOGETHER for name in names) == sorted(MISTAKES)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("names", TOGETHER, ids=", ".join)
def test_the_conventions_find_mistakes(project: Path, names: tuple[str, ...]) -> None:
    run_in(project, sys.executable, "gateway.py", "new", "reminders", "--ttl", "--version")
    if "the cost ignores an argument" in names:
        replace_in(
            project / KEYS,
            LIST_KEY,
            f"""{LIST_KEY}    filter=("contains(#text, :search)",),
""",
        )
    for name in names:
        mistake = MISTAKES[name]
        replace_in(project / mistake.path, mistake.text, mistake.replacement)

    checked = attempt_in(project, *MAKE, "conventions")

    assert [name for name in names if MISTAKES[name].message not in checked.stdout] == []


def replace_in(path: Path, text: str, replacement: str) -> None:
    before = path.read_text()
    assert text in before, f"{path} is generated in another way: change the mistake."
    path.write_text(before.replace(text, replacement, 1))
