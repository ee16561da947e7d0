"""Rates that are derived from the scores."""

import strawberry

from datastore.matches.cricket import BattingLine, InningsScore

BALLS_PER_RATE = 6


def run_rate(parent: strawberry.Parent[InningsScore]) -> float | None:
    return round(parent.runs * BALLS_PER_RATE / parent.legal_balls, 2) if parent.legal_balls else None


def strike_rate(parent: strawberry.Parent[BattingLine]) -> float | None:
    return round(parent.runs * 100 / parent.balls, 2) if parent.balls else None
