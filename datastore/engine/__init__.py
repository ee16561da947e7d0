"""The embedded DynamoDB engine: a child process, its data directory, its access key and its TTL sweeper.

`engine.Engine` starts the engine or attaches to a running one. `programs` finds dynoxide or MiniStack.
"""
