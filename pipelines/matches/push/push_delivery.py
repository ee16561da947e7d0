"""What takes pushes and tells how each ended: the terms, and the stand-in that only logs."""

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
    """REJECTED: the token is dead. FAILED: it was not delivered, and the token may be fine. LOGGED: not sent."""

    DELIVERED = "delivered"
    REJECTED = "rejected"
    FAILED = "failed"
    LOGGED = "logged"


@dataclass(frozen=True, slots=True)
class Sent:
    """How a push ended; `reason` is APNs's word where it was not delivered."""

    outcome: PushOutcome
    reason: str | None = None
    retries: int = 0


@dataclass(frozen=True, slots=True)
class Push:
    """A notification for one device. `settle` hears how it ended."""

    token: str = field(repr=False)
    notification: ApnsNotification
    settle: Callable[[Sent], Awaitable[None]] | None = field(default=None, repr=False)


@dataclass(slots=True)
class PushSummary:
    """How many pushes ended how, the reasons of those that were not delivered, and how often one was tried again."""

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


class PushDelivery(Protocol):
    """What takes pushes. Never raises for what a device or APNs does."""

    async def send_all(self, pushes: AsyncIterable[Push]) -> PushSummary:
        """Send each once; a few at a time are taken from the iterator, however many it has."""

    async def aclose(self) -> None: ...


class LoggedDelivery:
    """Stands in where there are no credentials: it says what would be sent, once for each change."""

    async def send_all(self, pushes: AsyncIterable[Push]) -> PushSummary:
        summary = PushSummary()
        samples: dict[str, ApnsNotification] = {}
        async for push in pushes:
            samples.setdefault(push.notification.event, push.notification)
            sent = Sent(PushOutcome.LOGGED)
            summary.add(sent)
            await settled(push, sent)
        for event, sample in samples.items():
            state = orjson.dumps(orjson.loads(sample.body)["aps"]["content-state"]).decode()
            logger.info(
                "Would send to %d devices (no APNs credentials); a Live Activity %s: %s", summary.total, event, state
            )
        return summary

    async def aclose(self) -> None:
        """There is nothing to close."""


async def settled(push: Push, sent: Sent) -> None:
    """Tell the push's listener, whose trouble is logged."""
    if push.settle is None:
        return
    try:
        await push.settle(sent)
    except Exception:  # one device's trouble is not the others'
        logger.exception("What became of a push to %s could not be told", hashed(push.token))


def hashed(token: str) -> str:
    """A token as logs may show it: the same for the same token, and of no use to anybody."""
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()[:8]
