"""What the gateway and its DynamoDB client cost: `python -m benchmarks` prints one table (see docs/benchmarks.md)."""
