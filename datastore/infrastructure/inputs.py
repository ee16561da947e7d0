"""Descriptions of the input parameters that both export formats have."""

from datastore.model.access_patterns import Table

TABLE_PREFIX = "The prefix of the table names: the gateway's --prefix"
TOPIC = "The ARN of an SNS topic that alarms notify; empty for no notifications"
BUCKET = "The photo bucket: GATEWAY_PHOTO_BUCKET"


def lag_function(table: Table) -> str:
    return f"The Lambda function that handles the stream of {table.name}"
