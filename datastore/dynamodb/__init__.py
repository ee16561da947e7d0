"""A client of DynamoDB and DynamoDB Streams: signed HTTP/1.1 requests with retries.

`client.Client` makes all calls of the data plane. `codec` and `record_decoder` convert attribute values into Python
values and records, `sigv4` signs requests, `endpoints` finds the hosts in AWS. `http1` is the HTTP client; `retry`
decides about retries.
"""
