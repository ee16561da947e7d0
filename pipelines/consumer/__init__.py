"""A consumer of a table's stream: instances share its shards by leases, and handlers get each change.

`consumer.Consumer` is the consumer, `batches` isolates records that cannot be handled, `redrive` replays dead letters,
`aws_lambda` is the same as a Lambda function.
"""
