"""An HTTP/1.1 client for DynamoDB: POST requests over a small pool of kept connections.

`pool.Pool` keeps the connections and queues callers. `connection` is one connection. `connector` opens it, with TLS
where needed. `proxies` opens tunnels through an HTTP proxy.
"""

from datastore.dynamodb.http1.connector import HttpOrigin
from datastore.dynamodb.http1.pool import Pool, StartedRequest
from datastore.dynamodb.http1.proxies import ProxyUnusable
from datastore.dynamodb.http1.types import (
    DeadlineExceeded,
    HttpLimits,
    HttpResponse,
    NotConnected,
    ResponseLost,
    ResponseTimeout,
)

__all__ = [
    "DeadlineExceeded",
    "HttpLimits",
    "HttpOrigin",
    "HttpResponse",
    "NotConnected",
    "Pool",
    "ProxyUnusable",
    "ResponseLost",
    "ResponseTimeout",
    "StartedRequest",
]
