"""A client of DynamoDB and DynamoDB Streams: signed HTTP/1.1 requests with retries.

`client.Client` is the only way to the data plane. `codec` and `record_decoder` turn attribute values into Python and
into records, `sigv4` signs, `endpoints` knows AWS's hosts. `http1` and `retry` are packages of their own.
"""
