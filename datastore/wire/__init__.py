"""HTTP/1.1 as a client of DynamoDB speaks it: POST after POST over few connections that are kept.

`pool.py` has the connections and who waits for one, `connection.py` is one of them, `connecting.py` opens it,
and `proxies.py` finds its way through a proxy.
"""

from datastore.wire.connecting import Origin
from datastore.wire.pool import Pool
from datastore.wire.proxies import ProxyUnusable
from datastore.wire.terms import Answer, Limits, Lost, NotConnected, Silent, TooLate

__all__ = ["Answer", "Limits", "Lost", "NotConnected", "Origin", "Pool", "ProxyUnusable", "Silent", "TooLate"]
