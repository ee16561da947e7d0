"""Data structures and helpers of asyncio that know nothing of DynamoDB."""
