"""Rates that are derived from the scores."""

from collections.abc import Callable

import strawberry

from datastore.matches.cricket import Ball, BattingLine, InningsScore

BALLS_PER_RATE = 6


def known_text(name: str) -> Callable[..., str | None]:
    """Return the resolver of an attribute of a ball that is empty if the source does not state it."""

    def text(parent: strawberry.Parent[Ball]) -> str | None:
        return getattr(parent, name) or None

    return text


def run_rate(parent: strawberry.Parent[InningsScore]) -> float | None:
    return round(parent.runs * BALLS_PER_RATE / parent.legal_balls, 2) if parent.legal_balls else None


def strike_rate(parent: strawberry.Parent[BattingLine]) -> float | None:
    return round(parent.runs * 100 / parent.balls, 2) if parent.balls else None
