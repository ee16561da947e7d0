"""HTTP/1.1 as a client of DynamoDB speaks it: POST after POST over few connections that are kept.

`pool.py` has the connections and who waits for one, `connection.py` is one of them, `connecting.py` opens it,
and `proxies.py` finds its way through a proxy.
"""

from datastore.dynamodb.http1.connector import Origin
from datastore.dynamodb.http1.exchange_types import Answer, Limits, Lost, NotConnected, Silent, TooLate
from datastore.dynamodb.http1.pool import Pool
from datastore.dynamodb.http1.proxies import ProxyUnusable

__all__ = ["Answer", "Limits", "Lost", "NotConnected", "Origin", "Pool", "ProxyUnusable", "Silent", "TooLate"]
