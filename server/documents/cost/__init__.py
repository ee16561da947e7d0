"""Cost analysis: what an operation reads, estimated before its first read."""
