"""The interface of a push service, its results, and a stand-in that only logs pushes.

`apns` sends pushes to Apple, and decides which responses reject a token.
"""

import hashlib
import logging
from collections import Counter
from collections.abc import AsyncIterable, Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

import orjson

from pipelines.matches.push.apns_payload import ApnsNotification

logger = logging.getLogger(__name__)


class PushOutcome(StrEnum):
    """The outcome of a push."""

    DELIVERED = "delivered"
    REJECTED = "rejected"  # the token will never work again
    FAILED = "failed"  # the token may still work
    LOGGED = "logged"  # logged, and not sent


@dataclass(frozen=True, slots=True)
class Sent:
    """The result of a push. `reason` is APNs's, unless the push was delivered."""

    outcome: PushOutcome
    reason: str | None = None
    retries: int = 0


@dataclass(frozen=True, slots=True)
class Push:
    """A notification for one device. `on_sent` is awaited with the result."""

    token: str = field(repr=False)
    notification: ApnsNotification
    on_sent: Callable[[Sent], Awaitable[None]] | None = field(default=None, repr=False)


@dataclass(slots=True)
class PushSummary:
    """Counts of pushes by outcome, of the reasons for failures, and of retries."""

    outcomes: Counter[PushOutcome] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    retries: int = 0

    @property
    def total(self) -> int:
        return self.outcomes.total()

    def add(self, sent: Sent) -> None:
        self.outcomes[sent.outcome] += 1
        self.retries += sent.retries
        if sent.reason is not None:
            self.reasons[sent.reason] += 1

    def __str__(self) -> str:
        parts = [f"{count} {outcome.value}" for outcome, count in sorted(self.outcomes.items())] or ["nothing to send"]
        parts += [f"{count} × {reason}" for reason, count in self.reasons.most_common(5)]
        return ", ".join([*parts, f"{self.retries} retries"] if self.retries else parts)


class PushService(Protocol):
    """A push service. It raises no error for a failure of a device or of APNs."""

    async def send_all(self, pushes: AsyncIterable[Push]) -> PushSummary:
        """Send each push once. The iterator is read only as fast as pushes are sent."""

    async def aclose(self) -> None: ...


class LoggedPushService:
    """A stand-in without credentials. It logs one sample of the pushes of each change."""

    async def send_all(self, pushes: AsyncIterable[Push]) -> PushSummary:
        summary = PushSummary()
        samples: dict[str, ApnsNotification] = {}
        async for push in pushes:
            samples.setdefault(push.notification.event, push.notification)
            sent = Sent(PushOutcome.LOGGED)
            summary.add(sent)
            await report_outcome(push, sent)
        for event, sample in samples.items():
            state = orjson.dumps(orjson.loads(sample.body)["aps"]["content-state"]).decode()
            logger.info(
                "Would send to %d devices (no APNs credentials); a Live Activity %s: %s", summary.total, event, state
            )
        return summary

    async def aclose(self) -> None:
        """Do nothing."""


async def report_outcome(push: Push, sent: Sent) -> None:
    """Call the push's `on_sent` and log its failure."""
    if push.on_sent is None:
        return
    try:
        await push.on_sent(sent)
    except Exception:  # must not affect other devices
        logger.exception("Could not record the outcome of a push to %s", token_hash(push.token))


def token_hash(token: str) -> str:
    """Return a short hash that identifies the token in logs without disclosing it."""
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()[:8]
