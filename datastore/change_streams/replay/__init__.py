"""Replay for subscriptions that resume: the log of recent changes, and older records from the stream.

`replay_log.ReplayLog` holds the recent changes of a table, and `backfill` reads older ones. `resume_token.ResumeToken`
is a position in each open shard, and `signed_resume_ids` signs the ids that clients send.
"""
