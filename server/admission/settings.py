"""The settings of admission control: limits of callers, of addresses and of the process."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from datastore.redis.urls import check_redis_url

_NUMBERS = {
    "budget_units": "GATEWAY_BUDGET_UNITS",
    "budget_units_per_second": "GATEWAY_BUDGET_UNITS_PER_SECOND",
    "anonymous_budget_units": "GATEWAY_ANONYMOUS_BUDGET_UNITS",
    "anonymous_budget_units_per_second": "GATEWAY_ANONYMOUS_BUDGET_UNITS_PER_SECOND",
    "concurrent": "GATEWAY_MAX_CONCURRENT",
    "concurrent_per_caller": "GATEWAY_MAX_CONCURRENT_PER_CALLER",
    "lag_seconds": "GATEWAY_MAX_LAG_SECONDS",
    "connections": "GATEWAY_MAX_CONNECTIONS",
    "connections_per_address": "GATEWAY_MAX_CONNECTIONS_PER_ADDRESS",
    "websockets": "GATEWAY_MAX_WEBSOCKETS",
    "websockets_per_caller": "GATEWAY_MAX_WEBSOCKETS_PER_CALLER",
    "subscriptions": "GATEWAY_MAX_SUBSCRIPTIONS",
    "subscriptions_per_caller": "GATEWAY_MAX_SUBSCRIPTIONS_PER_CALLER",
    "operations_per_websocket": "GATEWAY_MAX_OPERATIONS_PER_WEBSOCKET",
    "waiting_bytes": "GATEWAY_MAX_WAITING_BYTES",
    "incoming_bytes": "GATEWAY_MAX_INCOMING_BYTES",
    "incoming_bytes_per_caller": "GATEWAY_MAX_INCOMING_BYTES_PER_CALLER",
    "websocket_messages": "GATEWAY_MAX_WEBSOCKET_MESSAGES",
    "websocket_messages_per_second": "GATEWAY_MAX_WEBSOCKET_MESSAGES_PER_SECOND",
}
REDIS_URL, TRUSTED_PROXIES = "GATEWAY_REDIS_URL", "GATEWAY_TRUSTED_PROXIES"
VARIABLES = (*_NUMBERS.values(), REDIS_URL, TRUSTED_PROXIES)
_FRACTIONS = {
    name for name in _NUMBERS if name.startswith(("budget", "anonymous", "lag")) or name.endswith("per_second")
}


@dataclass(frozen=True, slots=True)
class Capacity:
    """The limits of the process and of its callers. 0 is unlimited.

    Raises `ValueError` for a budget that is never refilled, an invalid network, or an invalid URL of Redis.
    """

    #: The sizes of budgets in read units, and their refill in read units per second.
    budget_units: float = 5_000
    budget_units_per_second: float = 200
    anonymous_budget_units: float = 2_500
    anonymous_budget_units_per_second: float = 100
    concurrent: int = 256
    concurrent_per_caller: int = 32
    #: The delay of the event loop, in seconds, above which operations are refused.
    lag_seconds: float = 1.0
    connections: int = 10_000
    connections_per_address: int = 512
    websockets: int = 5_000
    websockets_per_caller: int = 200
    subscriptions: int = 20_000
    subscriptions_per_caller: int = 200
    operations_per_websocket: int = 100
    #: The bytes of events that are queued for a client that reads slowly, over all of its subscriptions.
    waiting_bytes: int = 262_144
    #: The bytes of incomplete uploads in the folder of pictures, in total and of one user.
    incoming_bytes: int = 4 * 2**30
    incoming_bytes_per_caller: int = 256 * 2**20
    #: The burst and the rate of a WebSocket's messages. Messages beyond these limits are read later.
    websocket_messages: int = 1_000
    websocket_messages_per_second: float = 200
    #: The Redis through which processes share the budgets of their callers.
    redis_url: str | None = None
    #: Networks (CIDR) whose X-Forwarded-For and X-Forwarded-Proto are trusted.
    trusted_proxies: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for kind in ("", "anonymous_"):
            units, rate = f"{kind}budget_units", f"{kind}budget_units_per_second"
            if getattr(self, units) and not getattr(self, rate):
                raise ValueError(f"{_NUMBERS[rate]} must be above 0: otherwise {_NUMBERS[units]} is never refilled.")
        for network in self.trusted_proxies:
            try:
                ipaddress.ip_network(network)
            except ValueError as problem:
                raise ValueError(f"{TRUSTED_PROXIES}: {problem}.") from None
        if self.redis_url is not None:
            try:
                check_redis_url(self.redis_url)
            except ValueError as problem:
                raise ValueError(f"{REDIS_URL} {problem}.") from None


def capacity_of(environment: Mapping[str, str]) -> Capacity:
    """Return the capacity in the environment, with defaults. Raises `ValueError` with the name of the variable."""
    overrides: dict[str, Any] = {
        field: _count(name, environment[name], float if field in _FRACTIONS else int)
        for field, name in _NUMBERS.items()
        if environment.get(name)
    }
    if url := environment.get(REDIS_URL):
        overrides["redis_url"] = url
    if proxies := environment.get(TRUSTED_PROXIES):
        overrides["trusted_proxies"] = tuple(part.strip() for part in proxies.split(",") if part.strip())
    return Capacity(**overrides)


def unlimited() -> Capacity:
    """Return a capacity without limits, for measurements."""
    zeros: dict[str, Any] = dict.fromkeys(_NUMBERS, 0)
    return Capacity(**zeros)


def _count(name: str, text: str, kind: type[int] | type[float]) -> float:
    try:
        value = kind(text)
    except ValueError:
        value = -1
    if not 0 <= value < float("inf"):
        noun = "a number" if kind is float else "a whole number"
        raise ValueError(f"{name} must be {noun}, 0 or more, not {text!r}.")
    return value
