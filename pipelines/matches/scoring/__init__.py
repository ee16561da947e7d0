"""Scores and scorecards counted ball by ball."""
