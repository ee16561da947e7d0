"""Resuming a subscription: the log of recent changes, and older records from the stream.

`replay_log.Log` holds the recent changes of a table, `backfill` reads older ones, `resume_token.Place` is a position
for each open shard, and `signed_resume_ids` makes the ids that clients send.
"""
