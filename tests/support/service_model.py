"""botocore's model of DynamoDB. The module reads it on import, so that forked processes share it."""

from tests.support.request_rules import CHECKED, operation_shape

for operation in CHECKED:
    operation_shape(operation)
