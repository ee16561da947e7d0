"""Steps and data of the tests of consumer shards."""

from tests.support.consumers import record
from tests.support.scripted_stream import Script


def write(script: Script, shard: str, number: int, partition: str = "k") -> None:
    made = record(number, partition)
    script.shards[shard].records.append(made)
