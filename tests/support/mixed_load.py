"""A mixed load on all five systems through GraphQL over HTTP, and a model of what may be true after each answer.

Each fact (a like, a name, a sighting) is written by one actor alone, one operation after another. So a write that is
acknowledged settles what is true; one whose answer says that it may have been applied leaves both; and one that was
refused changes nothing.
"""

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from datastore.matches.cricket import Match
from datastore.model.identity import Role
from datastore.model.ids import uuid7
from tests.support.load_operations import READS, WRITES, Read, Sighted, Write
from tests.support.photo_items import photo, photo_user, put_library_items
from tests.support.remote import PASSING, leaves_open
from tests.support.served import Served

Fact = tuple[str, ...]
KEY_TRIES = 30
SYNC = "mutation ($teams: [TeamInput!]!) { syncTeams(input: $teams) { teamId } }"
PERSONS = 10


@dataclass
class Truth:
    """The possible values of each fact: one after an acknowledged write. A fact that was never written is None."""

    may_be: dict[Fact, set[Any]] = field(default_factory=lambda: defaultdict(lambda: {None}))
    # All values that were sent.
    tried: dict[Fact, set[Any]] = field(default_factory=lambda: defaultdict(set))

    def acknowledged(self, fact: Fact, value: Any) -> None:
        self.may_be[fact] = {value}

    def unsure(self, fact: Fact, value: Any) -> None:
        self.may_be[fact] = self.may_be[fact] | {value}

    def holds(self, fact: Fact, value: Any) -> bool:
        return value in self.may_be[fact]

    def certain(self, kind: str) -> set[Fact]:
        """Return the facts of a kind that certainly exist, whatever happens to writes in flight."""
        return {fact for fact, values in self.may_be.items() if fact[0] == kind and None not in values}

    def wrong(self, kind: str, stored: dict[Fact, Any]) -> list[Any]:
        """Return the facts of a kind whose stored value is not a possible one."""
        facts = {fact for fact in (*self.may_be, *stored) if fact[0] == kind}
        return [(fact, stored.get(fact), self.may_be[fact]) for fact in facts if not self.holds(fact, stored.get(fact))]


@dataclass
class ClientReport:
    """The responses of the clients: `codes` of errors by operation, and wrong responses."""

    operations: Counter[str] = field(default_factory=Counter)
    codes: Counter[tuple[str, str]] = field(default_factory=Counter)
    # Writes that may have been applied, and reads with that error.
    unsure: int = 0
    reads_unsure: int = 0
    asked_again: int = 0
    undeclared: list[Any] = field(default_factory=list)
    wrong: list[Any] = field(default_factory=list)

    @property
    def failed(self) -> int:
        return sum(self.codes.values())


class MixedLoad:
    """Concurrent actors with a random generator each, so that no actor changes the choices of another.

    `keyed` is the share of writes with an idempotency key. With `persistent` actors repeat these until the response is
    final, and send writes without a key only if no other write sets their facts: a paused gateway may execute a lost
    request after later ones.
    """

    def __init__(
        self,
        served: Served,
        *,
        actors: int,
        seed: int,
        writes: Sequence[Callable[["Actor"], Write | None]] = WRITES,
        reads: Sequence[Callable[["Actor"], Read | None]] = READS,
        persistent: bool = False,
    ) -> None:
        self.served = served
        self.writes = writes
        self.reads = reads
        self.keyed = 0.5
        self.tries = 10_000 if persistent else KEY_TRIES
        self.persistent = persistent
        self.truth = Truth()
        self.report = ClientReport()
        self.done = 0
        self.actors = [Actor(self, f"user{number:02}", random.Random(f"{seed} {number}")) for number in range(actors)]
        self.posts: list[tuple[str, str]] = []
        self.sightings: list[Sighted] = []
        # The last acknowledged revision of each fixture.
        self.revisions: dict[str, int] = {}
        self.photos = [actor.photo for actor in self.actors]

    def fixtures(self, starts_at: datetime) -> list[Match]:
        """Return the match that actors follow, and a fixture of each actor."""
        ids = ("m1", *(f"f-{actor.name}" for actor in self.actors))
        return [Match(one, "L", "IPL", home_team_id="10", away_team_id="20", start_time=starts_at) for one in ids]

    async def enter(self) -> None:
        """Create what the operations of actors change: a profile, a photo and a team of each."""
        for actor in self.actors:
            await put_library_items(self.served, photo_user(actor.email), photo(actor.photo, actor.email))
            self.truth.acknowledged(("photo", actor.photo), f"Photo {actor.photo}")
            answer = await self.served.ask('mutation { createUser(input: {name: "x"}) { userId } }', user=actor.name)
            assert answer.errors is None
            team = {"teamId": f"t-{actor.name}", "name": "First", "code": "T"}
            answer = await self.served.ask(SYNC, {"teams": [team]}, user="job", role=Role.SYSTEM)
            assert answer.errors is None
            self.truth.acknowledged(("team", f"t-{actor.name}"), "First")

    async def run(self, operations: int) -> None:
        """Execute this number of operations, divided among the actors by their speed."""
        await self._run(iter(range(operations)))

    async def work_until(self, over: asyncio.Event) -> None:
        """Execute operations until `over` is set."""
        await self._run(iter(over.is_set, True))

    async def _run(self, left: Iterator[object]) -> None:
        async def work(actor: "Actor") -> None:
            for _ in left:
                await actor.act()
                self.done += 1

        async with asyncio.TaskGroup() as tasks:
            for actor in self.actors:
                tasks.create_task(work(actor))


class Actor:
    """A user of all systems."""

    def __init__(self, load: MixedLoad, name: str, rng: random.Random) -> None:
        self.load = load
        self.name = name
        self.rng = rng
        self.email = f"{name}@example.com"
        self.photo = f"photo-{name}"
        self.done = 0
        self.persons = [self.new_id() for _ in range(PERSONS)]
        self.faces = {(person, number): self.new_id() for person in self.persons for number in range(2)}

    def new_id(self) -> str:
        """Return an id in the form of clients' ids."""
        return uuid7(self.load.served.clock(), str(UUID(int=self.rng.getrandbits(128))))

    async def act(self) -> None:
        """Write, or read a written fact."""
        self.done += 1
        if self.rng.random() < 0.55:
            await self.write(self._choice(self.load.writes)(self))
        else:
            await self.read(self._choice(self.load.reads)(self))

    def _choice(self, kinds: Sequence[Callable[["Actor"], Any]]) -> Callable[["Actor"], Any]:
        return self.rng.choice(kinds)

    async def write(self, write: Write | None) -> None:
        """Send a write with an idempotency key, and repeat it until it is acknowledged: it is applied once."""
        if write is None:
            return
        keyed = self.rng.random() < self.load.keyed or (self.load.persistent and not write.once)
        key = f"{self.name}-{self.done}" if keyed else None
        for fact in write.facts:
            self.load.truth.tried[fact].add(write.value)
        for number in range(self.load.tries if keyed else 1):
            if number > 0:
                self.load.report.asked_again += 1
            answer = await self._ask(write.name, write.query, write.variables, write.role, key)
            if answer.get("errors") is None:
                for fact in write.facts:
                    self.load.truth.acknowledged(fact, write.value)
                write.acknowledged(answer["data"])
                return
            if any(error["extensions"].get("mayHaveBeenApplied") for error in answer["errors"]):
                self.load.report.unsure += 1
                for fact in write.facts:
                    self.load.truth.unsure(fact, write.value)
            if self.load.report.undeclared or (self.load.persistent and leaves_open(answer["errors"])):
                return
            await asyncio.sleep(self.rng.random() * 0.1 if keyed else 0)

    async def read(self, read: Read | None) -> None:
        if read is None:
            return
        answer = await self._ask(read.name, read.query, read.variables, read.role)
        unsure = [error for error in answer.get("errors") or () if error["extensions"].get("mayHaveBeenApplied")]
        # `remote` itself reports lost responses as unsure.
        self.load.report.reads_unsure += unsure != []
        if answer.get("errors") is None and not read.right(answer["data"]):
            self.load.report.wrong.append((read.name, read.variables, answer["data"]))

    async def _ask(
        self, name: str, query: str, variables: dict[str, Any], role: Role, key: str | None = None
    ) -> dict[str, Any]:
        served, received = self.load.served, self.load.report
        headers = served.headers(self.name, role, self.email) | ({"Idempotency-Key": key} if key else {})
        body = {"query": query, "variables": variables}
        async with served.http.post(f"{served.url}/graphql", json=body, headers=headers) as response:
            answer: dict[str, Any] = await response.json(content_type=None)
        received.operations[name] += 1
        for error in answer.get("errors") or ():
            code = error["extensions"]["code"]
            received.codes[name, code] += 1
            if code not in PASSING:
                received.undeclared.append((name, error))
        return answer
