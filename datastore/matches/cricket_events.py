"""The events of a match that subscribers and notifications receive: wickets, milestones, breaks, the result."""

from enum import StrEnum

from datastore.matches.cricket import Ball, Record


class CricketEventKind(StrEnum):
    """The kind of a match event."""

    INNINGS_START = "innings_start"
    WICKET = "wicket"
    FOUR = "four"
    SIX = "six"
    FIFTY = "fifty"
    HUNDRED = "hundred"
    MILESTONE = "milestone"  # every further fifty of a batter: 150, 200 …
    HAT_TRICK = "hat_trick"
    MAIDEN = "maiden"
    PARTNERSHIP = "partnership"
    INNINGS_BREAK = "innings_break"
    TARGET = "target"
    SUPER_OVER = "super_over"
    RAIN = "rain"
    RESUMPTION = "resumption"
    RESULT = "result"
    CORRECTION = "correction"


class CricketEvent(Record, frozen=True):
    """A match event, with the score after it. `value` is the number of a milestone or target.

    `event_id` consists of the match, the ball or innings, and the kind: an event that is found again has the same id.
    """

    event_id: str
    kind: CricketEventKind
    text: str
    innings: int | None = None
    score: str | None = None
    ball: Ball | None = None
    player_id: str | None = None
    player: str | None = None
    value: int | None = None
