"""The state that all sockets of an endpoint share."""

from collections.abc import Callable
from dataclasses import dataclass, field
from operator import methodcaller
from typing import TYPE_CHECKING

from datastore.primitives.timer_queue import TimerQueue
from server.admission.quotas import KeyedQuota
from server.operations.runner import Runner
from server.security.jwt import Identify
from server.subscriptions.manager import SubscriptionManager
from server.websocket.transport import SocketLimits

if TYPE_CHECKING:
    from server.websocket.socket import Socket


@dataclass(frozen=True, slots=True)
class Service:
    """The state shared by all sockets of an endpoint."""

    runner: Runner
    subscriptions: SubscriptionManager
    identify: Identify
    limits: SocketLimits
    clock: Callable[[], float]
    #: The limit of sockets per caller and in all.
    quota: KeyedQuota
    sockets: "set[Socket]" = field(default_factory=set)
    init_timeouts: "TimerQueue[Socket]" = field(init=False)
    pings: "TimerQueue[Socket]" = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "init_timeouts", TimerQueue(self.limits.init_timeout, methodcaller("check_initialised"))
        )
        object.__setattr__(self, "pings", TimerQueue(self.limits.ping_every, methodcaller("ping")))
