"""The errors of operations that are refused because of their estimates."""

from datastore.errors import BadUserInput


class TooCostly(BadUserInput):
    """An operation exceeds the limit of cost. `extensions` have the `estimate` and the `limit`, in read units."""

    def __init__(self, estimate: float, limit: float) -> None:
        super().__init__(
            f"The operation may cost {estimate:,.1f} read units, and at most {limit:,g} are allowed: "
            "select smaller pages or windows, or fewer fields at a time.",
            estimate=round(estimate, 1),
            limit=limit,
        )
        self.estimate = estimate


class TooManyValues(BadUserInput):
    """A response exceeds the limit of values. `extensions` have the `estimate` and the `limit`."""

    def __init__(self, estimate: float, limit: float) -> None:
        super().__init__(
            f"The response may have {estimate:,.0f} values, and at most {limit:,g} are allowed: "
            "select smaller pages, fewer fields, or fewer aliases of the same field.",
            measure="values",
            estimate=round(estimate),
            limit=limit,
        )


class TooManyIncrements(BadUserInput):
    """A response exceeds the limit of parts. `extensions` have the `estimate` and the `limit`."""

    def __init__(self, estimate: float, limit: float) -> None:
        super().__init__(
            f"The response may have {estimate:,.0f} deferred fragments and streamed lists, and at most {limit:,g} are "
            "allowed: select smaller pages, or defer a fragment around a list rather than one in each of its objects.",
            measure="parts",
            estimate=round(estimate),
            limit=limit,
        )
