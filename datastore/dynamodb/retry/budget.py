"""How many tries may be repeated: a store that fails is not asked ever more because it fails.

The tokens and their prices are those of the AWS SDKs' standard mode.
https://docs.aws.amazon.com/sdkref/latest/guide/feature-retry-behavior.html
"""

CAPACITY = 500
RETRY_COST = 5  # what a try costs that is repeated
TIMEOUT_RETRY_COST = 10  # after one that was not answered in time: it may still be worked on
SUCCESS_REFUND = 1  # what a call gives back that was answered at its first try


class RetryBudget:
    """The tokens of one endpoint, at most `capacity`: retries take some, successful calls refund some.

    `spent` is the number of tokens taken, `refused` the number of retries that the budget did not allow.
    """

    __slots__ = ("capacity", "refused", "spent")

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.capacity = capacity
        self.spent = 0
        self.refused = 0

    @property
    def tokens(self) -> int:
        return self.capacity - self.spent

    def take(self, cost: int) -> bool:
        """Take tokens, if there are enough."""
        if self.spent + cost > self.capacity:
            self.refused += 1
            return False
        self.spent += cost
        return True

    def refund(self, tokens: int) -> None:
        self.spent = max(0, self.spent - tokens)
