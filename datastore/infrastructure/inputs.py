"""What a stack or a configuration is given, in the words in which both ask for it."""

from datastore.model.access_patterns import Table

PREFIX = "What the names of the tables begin with: the gateway's --prefix"
TOPIC = "The ARN of an SNS topic that alarms are told to; empty: alarms tell nobody"
BUCKET = "The bucket of photos: GATEWAY_PHOTO_BUCKET"


def function(table: Table) -> str:
    return f"The Lambda function that handles the stream of {table.name}"
