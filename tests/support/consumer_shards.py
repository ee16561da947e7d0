"""Shards with records for the tests of consumers."""

from tests.support.consumers import stream_record
from tests.support.scripted_stream import Script


def append_record(script: Script, shard: str, number: int, partition: str = "k") -> None:
    made = stream_record(number, partition)
    script.shards[shard].records.append(made)
