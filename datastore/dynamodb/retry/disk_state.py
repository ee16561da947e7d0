"""The state of the store's disk, which an engine on a local disk reports with its refusals of writes."""

import logging
import math

logger = logging.getLogger(__name__)

LOG_REPEAT_SECONDS = 60.0


class DiskState:
    """Whether the last write was refused because the store's disk is full or read-only."""

    def __init__(self) -> None:
        self.is_full = False
        self._log_at = -math.inf
        self._is_logged = False

    def refused(self, content: bytes, now: float) -> None:
        """Record a write that was refused with `content`. Log it once a minute; `now` is in seconds."""
        self.is_full = True
        if now >= self._log_at:
            self._log_at, self._is_logged = now + LOG_REPEAT_SECONDS, True
            message = content.decode(errors="replace")[:300]
            logger.error("The store cannot write. Free space on its disk; no restart is needed. Its error: %s", message)

    def written(self) -> None:
        """Record a write that succeeded after a refusal."""
        self.is_full = False
        if self._is_logged:  # small writes may succeed between the refused ones
            self._is_logged = False
            logger.info("The store writes again.")
