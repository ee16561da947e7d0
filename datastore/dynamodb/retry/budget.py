"""How many tries may be repeated: a store that fails is not asked ever more because it fails.

The tokens and their prices are those of the AWS SDKs' standard mode.
https://docs.aws.amazon.com/sdkref/latest/guide/feature-retry-behavior.html
"""

MOST = 500
RETRY = 5  # what a try costs that is repeated
LATE_RETRY = 10  # after one that was not answered in time: it may still be worked on
PLAIN = 1  # what a call gives back that was answered at its first try


class RetryBudget:
    """Tokens that repeated tries cost and answered calls give back, at most `most`. One for each endpoint of a client.

    `missing` are those that it lacks to be full, `refused` counts the tries that were not made for want of them.
    """

    __slots__ = ("missing", "most", "refused")

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self.missing = 0
        self.refused = 0

    @property
    def tokens(self) -> int:
        return self.most - self.missing

    def take(self, price: int) -> bool:
        """Whether there are so many tokens, which are gone then."""
        if self.missing + price > self.most:
            self.refused += 1
            return False
        self.missing += price
        return True

    def give_back(self, tokens: int) -> None:
        self.missing = max(0, self.missing - tokens)
