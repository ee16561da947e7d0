"""The retry budget: it bounds the retries of a store that fails, so that they do not add to its load.

Capacity and costs are those of the AWS SDKs' standard retry mode.
https://docs.aws.amazon.com/sdkref/latest/guide/feature-retry-behavior.html
"""

CAPACITY = 500
RETRY_COST = 5
TIMEOUT_RETRY_COST = 10  # more, because the store may still work on the attempt that timed out
SUCCESS_REFUND = 1  # for a call that succeeds at its first attempt


class RetryBudget:
    """The retry budget of one endpoint, at most `capacity` tokens: retries take some, successful calls refund some."""

    __slots__ = ("capacity", "refused", "spent")

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.capacity = capacity
        #: The number of tokens taken and not refunded.
        self.spent = 0
        #: The number of retries that the budget did not allow.
        self.refused = 0

    @property
    def tokens(self) -> int:
        return self.capacity - self.spent

    def take(self, cost: int) -> bool:
        """Take tokens for a retry. Return whether there were enough."""
        if self.spent + cost > self.capacity:
            self.refused += 1
            return False
        self.spent += cost
        return True

    def refund(self, tokens: int) -> None:
        self.spent = max(0, self.spent - tokens)
