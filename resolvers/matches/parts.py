"""Parts of a match, such as its innings: copies of records with the key from which their id is derived.

Items contain thousands of such records, so the records do not repeat the id of their match. A resolver of parts adds
the key to those of a response, and only if their `id` is needed.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Protocol

import strawberry
from msgspec import defstruct
from msgspec.structs import astuple, replace

from datastore.matches.cricket import Ball, BattingLine, BowlingLine, FallOfWicket, InningsScore, Record, Scorecard
from datastore.matches.cricket_events import CricketEvent
from datastore.matches.display import DisplayInnings, DisplaySide, DisplayState
from datastore.matches.live_state import LiveScore
from resolvers.shared.context import Info
from resolvers.shared.global_ids import global_id
from resolvers.shared.selected_fields import selected_child_fields, selects


class OfMatch(Protocol):
    """A record of a match."""

    @property
    def match_id(self) -> str: ...


class WithInnings(OfMatch, Protocol):
    @property
    def innings(self) -> Sequence[InningsScore]: ...


class WithEvents(OfMatch, Protocol):
    @property
    def events(self) -> Sequence[CricketEvent]: ...


def part_id(kind: str) -> Callable[..., str]:
    """Return the resolver of `id` for parts of this type."""

    def resolve_id(parent: strawberry.Parent[Any]) -> str:
        return global_id(kind, *parent.key)

    return resolve_id


def part(record: Record, *key: object) -> Any:
    """Return a copy of the record with its `key`."""
    return _part_type(type(record))(*astuple(record), tuple(map(str, key)))


@cache
def _part_type(kind: type[Record]) -> type[Any]:
    key = ("key", tuple[str, ...], ())
    return defstruct(kind.__name__, [key], bases=(kind,), module=__name__, frozen=True, gc=False)


def _parts(info: Info, field: str, records: Sequence[Any], number: str, *key: object) -> Sequence[Any]:
    """Return the records as parts, or unchanged if their `id` is not selected.

    `field` is the field of the API that resolves to them: a CONFLICT contains the fields of the present object without
    a selection. `number` is the attribute that completes their key.
    """
    if info.field_name == field and not selects(info, "id"):
        return records
    return [part(each, *key, getattr(each, number)) for each in records]


def innings(parent: strawberry.Parent[WithInnings], info: Info) -> Sequence[InningsScore]:
    return _parts(info, "innings", parent.innings, "number", parent.match_id)


def batting(parent: strawberry.Parent[Any], info: Info) -> Sequence[BattingLine]:
    """Return the batters of a scorecard."""
    return _parts(info, "batting", parent.batting, "player_id", *parent.key)


def bowling(parent: strawberry.Parent[Any], info: Info) -> Sequence[BowlingLine]:
    """Return the bowlers of a scorecard."""
    return _parts(info, "bowling", parent.bowling, "player_id", *parent.key)


def fall_of_wickets(parent: strawberry.Parent[Any], info: Info) -> Sequence[FallOfWicket]:
    return _parts(info, "fallOfWickets", parent.fall_of_wickets, "wicket", *parent.key)


def current_batting(parent: strawberry.Parent[LiveScore], info: Info) -> Sequence[BattingLine]:
    return _parts(info, "batting", parent.batting, "player_id", *_current_innings(parent))


def current_bowling(parent: strawberry.Parent[LiveScore], info: Info) -> Sequence[BowlingLine]:
    return _parts(info, "bowling", parent.bowling, "player_id", *_current_innings(parent))


def _current_innings(live: LiveScore) -> tuple[str, int]:
    """Return the key of the latest innings, to which the batters at the crease and the bowlers belong."""
    return live.match_id, live.innings[-1].number if live.innings else 0


def recent_balls(parent: strawberry.Parent[LiveScore], info: Info) -> Sequence[Ball]:
    return _parts(info, "recentBalls", parent.recent_balls, "ball_id", parent.match_id)


def events(parent: strawberry.Parent[WithEvents], info: Info) -> Sequence[CricketEvent]:
    """Return the events, with their balls as parts if the id of the balls is selected."""
    if info.field_name == "events" and "id" not in selected_child_fields(info, "ball"):
        return parent.events
    return [_with_ball(parent.match_id, event) for event in parent.events]


def _with_ball(match_id: str, event: CricketEvent) -> CricketEvent:
    return event if event.ball is None else replace(event, ball=part(event.ball, match_id, event.ball.ball_id))


def scorecard_parts(match_id: str, cards: Sequence[Scorecard] | None) -> list[Scorecard]:
    """Return scorecards as parts, whose keys the keys of their lines contain."""
    return [part(card, match_id, card.number) for card in cards or ()]


def side(name: str) -> Callable[..., DisplaySide]:
    """Return the resolver of a side of a display state: `team` or `opponent`."""

    def resolve_side(parent: strawberry.Parent[DisplayState]) -> DisplaySide:
        side: DisplaySide = getattr(parent, name)
        return part(side, parent.match_id, side.team_id)  # type: ignore[no-any-return]

    return resolve_side


def innings_of_side(parent: strawberry.Parent[Any], info: Info) -> Sequence[DisplayInnings]:
    return _parts(info, "innings", parent.innings, "number", *parent.key)
