"""Readers of the shards of a stream: listing, iterators, read pace and checkpoints.

`stream_reader.StreamReader` reads all shards of a table for subscribers; `shard_reader.ShardCursor` reads one shard for
a consumer.
"""
