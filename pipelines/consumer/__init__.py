"""A consumer of a table's stream: instances share the shards by leases, and handlers receive each change.

`consumer.Consumer` is the consumer, `batches` isolates records that cannot be handled, `redrive` handles dead letters
again, `aws_lambda` is the same as a Lambda function.
"""
