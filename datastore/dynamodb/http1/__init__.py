"""An HTTP/1.1 client for DynamoDB: POST requests over a small pool of kept connections.

`pool.Pool` hands out connections and queues callers. `connection` is one connection, which `connector` opens, with TLS
where needed. `proxies` tunnels through an HTTP proxy.
"""

from datastore.dynamodb.http1.connector import Origin
from datastore.dynamodb.http1.exchange_types import Answer, Limits, Lost, NotConnected, Silent, TooLate
from datastore.dynamodb.http1.pool import Pool
from datastore.dynamodb.http1.proxies import ProxyUnusable

__all__ = ["Answer", "Limits", "Lost", "NotConnected", "Origin", "Pool", "ProxyUnusable", "Silent", "TooLate"]
