"""Subscribers over WebSockets and event streams, and the check that each event came once and in order."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from datastore.model.identity import Role
from tests.support.chaos.earthquakes import OLDEST
from tests.support.followers import ListFollower, Viewer
from tests.support.load_operations import AREA, CATEGORY
from tests.support.remote import Remote
from tests.support.resuming_clients import EventStreamClient, SocketClient

REPORTED = f'subscription {{ sightingReported(area: "{AREA}") {{ description }} }}'
WATCHER = "watcher"
WATCH = f'mutation {{ createWatch(input: {{area: "{AREA}", category: "{CATEGORY}"}}) {{ area }} }}'
DETECTED = f'subscription {{ earthquakeDetected(from: "{OLDEST}") {{ eventId }} }}'
ALERTS = f'subscription {{ watchAlerts(userId: "{WATCHER}") {{ description }} }}'


@dataclass
class StreamVerdict:
    """The events of one stream: what its subscribers missed, received twice, or received in another order."""

    subscribers: int = 0
    connections: int = 0
    events: int = 0
    delivered: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    disordered: list[str] = field(default_factory=list)
    resyncs: int = 0
    refused: Counter[str | int] = field(default_factory=Counter)

    @property
    def problems(self) -> list[str]:
        found = {"lost": self.lost, "doubled": self.doubled, "not in order": self.disordered}
        said = [f"{name}: {values[:5]}" for name, values in found.items() if values]
        return said + ([f"errors {dict(self.refused)}"] if self.refused else [])


def judge_list(followers: Sequence[ListFollower], published: Iterable[str]) -> StreamVerdict:
    """Compare what followers received with all published events.

    The order is that in which the events reached the follower that received the most: a stream has one order for all.
    Events before one that followed a RESYNC may be missing.
    """
    expected = set(published)
    verdict = StreamVerdict(len(followers), events=len(expected))
    longest: list[str] = max((follower.events for follower in followers), key=lambda events: len(events))
    order = {key: number for number, key in enumerate(dict.fromkeys(longest))}
    for number, follower in enumerate(followers):
        received, name = Counter(follower.events), f"subscriber {number}"
        excused = _excused(follower, order)
        verdict.lost += [
            f"{name}: {key}" for key in sorted(expected - received.keys()) if order.get(key, -1) >= excused
        ]
        verdict.doubled += [f"{name}: {key}" for key, times in received.items() if times > 1]
        verdict.disordered += [f"{name}: {key}" for key in _disordered(follower.events, order)]
        verdict.delivered += len(follower.events)
        verdict.connections += follower.connections
        verdict.resyncs += follower.resyncs
        verdict.refused.update(follower.refused)
        verdict.lost += [f"{name}: unknown event {key}" for key in received.keys() - expected]
    return verdict


def _excused(follower: ListFollower, order: dict[str, int]) -> int:
    """Return the place of the first event after the last RESYNC; -1 without one."""
    if not follower.resynced_at:
        return -1
    after = follower.events[follower.resynced_at[-1] :]
    return order.get(after[0], len(order)) if after else len(order)


def _disordered(events: Sequence[str], order: dict[str, int]) -> list[str]:
    """Return the events that came after a later one, each once."""
    found, last = [], -1
    for key in dict.fromkeys(events):
        place = order.get(key)
        if place is not None and place < last:
            found.append(key)
        last = max(last, place if place is not None else last)
    return found


def judge_viewers(viewers: Sequence[Viewer], expected: set[str]) -> StreamVerdict:
    """Compare the versions and events that viewers of a match received with those of the match."""
    verdict = StreamVerdict(len(viewers), events=len(expected))
    for number, viewer in enumerate(viewers):
        name, received = f"viewer {number}", Counter(viewer.events)
        # After a RESYNC the state replaces the events that were missed.
        if viewer.resyncs == 0:
            verdict.lost += [f"{name}: {event}" for event in expected - received.keys()]
            seen = set(viewer.versions)
            verdict.lost += [f"{name}: version {one}" for one in range(min(seen), max(seen)) if one not in seen]
        verdict.doubled += [f"{name}: {event}" for event, times in received.items() if times > 1]
        verdict.doubled += [f"{name}: version {one}" for one, times in Counter(viewer.versions).items() if times > 1]
        if viewer.versions != sorted(viewer.versions):
            verdict.disordered.append(f"{name}: versions")
        verdict.lost += [f"{name}: unknown event {event}" for event in received.keys() - expected]
        verdict.delivered += len(viewer.events)
        verdict.connections += viewer.connections
        verdict.resyncs += viewer.resyncs
        verdict.refused.update(viewer.refused)
    return verdict


class Subscribers:
    """Subscribers of all sightings of the load, also as alerts for a watch, and of all earthquakes."""

    def __init__(self, served: Remote, http: aiohttp.ClientSession, urls: Sequence[str]) -> None:
        self._served = served
        headers = served.headers(WATCHER, Role.USER)
        transports = (SocketClient, EventStreamClient)
        self.reported = [
            ListFollower(transport(http, REPORTED, {}), urls, number, self._reported)
            for number, transport in enumerate(transports * 2)
        ]
        self.detected = [
            ListFollower(transport(http, DETECTED, {}), urls, 20 + number, self._detected)
            for number, transport in enumerate(transports)
        ]
        self.alerts = [
            ListFollower(transport(http, ALERTS, headers), urls, 10 + number, self._alerted)
            for number, transport in enumerate(transports)
        ]

    @staticmethod
    def _reported(data: Any) -> str:
        return str(data["sightingReported"]["description"])

    @staticmethod
    def _detected(data: Any) -> str:
        return str(data["earthquakeDetected"]["eventId"])

    @staticmethod
    def _alerted(data: Any) -> str:
        return str(data["watchAlerts"]["description"])

    @property
    def all(self) -> list[ListFollower]:
        return [*self.reported, *self.alerts, *self.detected]

    async def begin(self) -> None:
        answer = await self._served.ask(WATCH, user=WATCHER)
        assert answer.errors is None, answer.errors
        for follower in self.all:
            await follower.begin()

    def leave(self) -> None:
        for follower in self.all:
            follower.leave()

    def have(self, sightings: Iterable[str], earthquakes: Iterable[str]) -> bool:
        """Return whether every subscriber has these events."""
        reported, detected = set(sightings), set(earthquakes)
        have_sightings = all(reported <= set(follower.events) for follower in (*self.reported, *self.alerts))
        return have_sightings and all(detected <= set(follower.events) for follower in self.detected)
