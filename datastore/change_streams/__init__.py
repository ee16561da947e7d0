"""Change data capture: the tables' own streams as events for subscribers and pipelines.

`change.Change` is a record of a stream. `change_feed.ChangeFeed` delivers the changes of a table in the order of each
key, from now on or from a position (`replay`). `shards` reads the shards of a stream, `relay` lets one process read for
all through Redis. `leases`, `exactly_once` and `dead_letters` serve consumers.
"""
