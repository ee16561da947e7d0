"""Kinds of callers, and an object of each type with a global id, most of them Ada's."""

from dataclasses import dataclass
from typing import Any

import pytest

from datastore.keyspace.feeds.table import FEED
from datastore.model.identity import Role
from tests.support.contract import PAGES, prepare_all
from tests.support.contract.pages import NodeType
from tests.support.earthquake_samples import quake, store
from tests.support.notifications import notification_item
from tests.support.photo_items import ADA, EVE
from tests.support.served import Served

NODES: dict[str, NodeType] = {kind.name: kind for page in PAGES for kind in page.nodes}


@dataclass(frozen=True)
class Caller:
    """A kind of caller: the claims of its token."""

    user: str | None = None
    role: Role = Role.USER
    email: str | None = None


CALLERS = {
    "anonymous": Caller(),
    "owner": Caller("ada", email=ADA),
    "stranger": Caller("eve", email=EVE),
    "admin": Caller("root", Role.ADMIN, "root@example.com"),
    "system": Caller("poller", Role.SYSTEM),
}
every_caller = pytest.mark.parametrize("caller", CALLERS)


async def ask_as_caller(served: Served, caller: str, query: str, variables: dict[str, Any] | None = None) -> Any:
    who = CALLERS[caller]
    return await served.ask(query, variables, user=who.user, role=who.role, email=who.email)


async def prepare_nodes(served: Served) -> None:
    """Store an object of each type in `NODES`."""
    await prepare_all(served)
    await add_nodes(served)


async def add_nodes(served: Served) -> None:
    """Store what `prepare_all` leaves out of an object of each type in `NODES`."""
    comment = 'mutation { createComment(postId: "p1", input: {text: "Nice"}) { commentId } }'
    assert (await served.ask(comment, user="grace")).errors is None
    await served.store().write_all(FEED, puts=[notification_item("like-p1", post_id="p1")])
    await store(served, quake("us1"))


def first_id(found: Any) -> str:
    """Return the first `id` in the data of a response."""
    while not isinstance(found, str):
        found = found[0] if isinstance(found, list) else next(iter(found.values()))
    return found
