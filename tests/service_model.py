"""Reads botocore's model of DynamoDB when it is imported: processes that are forked then have it."""

from request_rules import CHECKED, shape

for operation in CHECKED:
    shape(operation)
