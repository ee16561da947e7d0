"""The quota of an HTTP connection. Beyond it the endpoints of health are served, and all other requests are refused."""

import asyncio

from datastore.errors import DomainError, Throttled, Unavailable
from server.admission.connection_limits import PROBE_PATHS, Connections
from server.http.protocol.rejections import RequestRejected
from server.http.protocol.request_head import RequestHead
from server.http.protocol.timed_transport import TimedTransport
from server.request_identity import RequestIdentity, identified, new_id

# The longest time in which a connection beyond the quota may send the head of its only request.
PROBE_SECONDS = 2.0
PROBE_METHODS = ("GET", "HEAD")


class AdmittedConnection(TimedTransport):
    """A connection that counts toward the quotas of its address and of the process.

    A connection beyond a quota has one request, so that load balancers and supervisors receive `/healthz` and `/readyz`
    even from an address that has all its connections. The number of such connections is limited, too
    (`Connections.acquire_probe`).
    """

    #: The connection's address, which the subclass sets before `_admit`.
    _address: str

    def __init__(self, loop: asyncio.AbstractEventLoop, limits: Connections) -> None:
        super().__init__(loop, limits.http_limits)
        self.limits = limits
        #: The beginning of the ids of its requests, which are numbered.
        self.id = new_id()
        self.request_count = 0
        self._counted = self._probing = False
        #: The refusal of all requests except those of health; None within the quotas.
        self._excess: RequestRejected | None = None

    def _admit(self) -> None:
        """Count the connection, and set the deadline of its first head.

        Raises `RequestRejected` beyond the quotas and the limit of connections for probes.
        """
        try:
            self.limits.acquire(self._address)
        except (Throttled, Unavailable) as full:
            self._excess = RequestRejected(429 if isinstance(full, Throttled) else 503, full)
            self._begin_probe()
            return
        self._counted = True
        self._expect_within(self._http_limits.head_seconds)

    def _begin_probe(self) -> None:
        assert self._excess is not None
        try:
            self.limits.acquire_probe(self._address)
        except DomainError:
            raise self._excess from None
        self._probing = True
        self._expect_within(PROBE_SECONDS)

    def _check_excess(self, head: RequestHead) -> None:
        """Raise `RequestRejected` if the connection is beyond a quota, and the request is not one of health."""
        if self._excess is not None and (head.method not in PROBE_METHODS or head.target.path not in PROBE_PATHS):
            raise self._excess

    def _report_refusal(self, status: int, error: DomainError) -> RequestIdentity:
        """Count and log a request that reaches no application. Return its identity."""
        self.request_count += 1
        identity = RequestIdentity(b"%b-%d" % (self.id, self.request_count))
        with identified(identity):
            self.limits.on_refusal(status, error.code)
        return identity

    def _release_quota(self) -> None:
        if self._counted:
            self.limits.release(self._address)
        if self._probing:
            self.limits.release_probe(self._address)
        self._counted = self._probing = False
