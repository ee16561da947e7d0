"""The token bucket: a limit that refills at a constant rate."""


def refilled(balance: float, size: float, per_second: float, seconds: float) -> float:
    """Return the balance after `seconds` of refilling. If the clock was set back, the balance is unchanged."""
    if seconds > 0:
        balance += seconds * per_second
    return balance if balance < size else size


class TokenBucket:
    """A bucket of at most `size` tokens, full at first, and refilled with `per_second`.

    `now` is the time in seconds.
    """

    __slots__ = ("_balance", "_refilled_at", "per_second", "size")

    def __init__(self, size: float, per_second: float, now: float) -> None:
        self.size = size
        self.per_second = per_second
        self._balance = size
        self._refilled_at = now

    def balance(self, now: float) -> float:
        """Return the number of tokens, negative for a debt."""
        self._balance = refilled(self._balance, self.size, self.per_second, now - self._refilled_at)
        self._refilled_at = now
        return self._balance

    def take(self, tokens: float, now: float) -> bool:
        """Take tokens if there are enough, and return whether there were."""
        if self.balance(now) < tokens:
            return False
        self._balance -= tokens
        return True

    def charge(self, tokens: float, now: float) -> float:
        """Take tokens, whether or not there are enough. Return the balance."""
        self._balance = self.balance(now) - tokens
        return self._balance
