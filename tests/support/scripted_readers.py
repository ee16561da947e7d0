"""Readers of a scripted stream with a sink that records."""

from collections.abc import Mapping
from typing import Any

from datastore.change_streams.change import Change
from datastore.change_streams.shards.checkpoints import Reached
from datastore.change_streams.shards.stream_reader import StreamReader
from datastore.keyspace.sightings import BLIP
from tests.support.changes import number_of
from tests.support.scripted_stream import Script


class RecordingSink:
    """A sink that records numbers and problems."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.problems: list[Exception] = []

    def start_epoch(self, *_: Any) -> None: ...
    def start_shard(self, *_: Any) -> None: ...
    def read_empty(self, *_: Any) -> None: ...

    def deliver(self, shard: str, change: Change, **_: Any) -> None:
        self.numbers.append(number_of(change))

    def lost(self, problem: Exception) -> None:
        self.problems.append(problem)


class Going:
    """A reader of a scripted stream that begins at the positions, or at the end of the stream without positions."""

    def __init__(self, script: Script, start: Mapping[str, str] | None) -> None:
        self.heard = RecordingSink()
        self.errors: list[Exception] = []
        self.reader = StreamReader(
            script,
            "",
            0.001,
            0.02,
            lambda _, problem: self.errors.append(problem),
            BLIP,
            self.heard,
            None if start is None else Reached(script.arn, start),
        )
