"""Conversion of SportMonks balls and scores to `Ball` records.

A score's `runs` include the penalty of a no-ball and all runs of a wide, but no byes and leg byes:
"1 No Ball + 1 Run" is runs 2, noball_runs 1; "1 No Ball + 1 Bye" runs 1, noball_runs 1, bye 1; "5 Wides" runs 5.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from datastore.matches.cricket import Ball, Extras, LineupPlayer, Wicket
from pipelines.matches.providers.sportmonks.values import (
    Row,
    UnreadableRow,
    convert_rows,
    count,
    flag,
    ident,
    innings_number,
    overs,
    required_id,
    row,
    text,
)
from pipelines.matches.scoring.dismissals import ABSENT, CREDITED_TO_BOWLER

# The first part that a score's name contains decides: "Catch Out (Sub)", "Clean Bowled", "LBW OUT", "Run Out + 1".
KINDS = (
    ("run out", "run out"),
    ("runout", "run out"),
    ("stump", "stumped"),
    ("lbw", "lbw"),
    ("hit wicket", "hit wicket"),
    ("caught & bowled", "caught and bowled"),
    ("caught and bowled", "caught and bowled"),
    ("catch", "caught"),
    ("caught", "caught"),
    ("bowled", "bowled"),
    ("retired out", "retired out"),
    ("retired hurt", "retired hurt"),
    ("retired", "retired not out"),
    ("obstruct", "obstructing the field"),
    ("timed out", "timed out"),
    ("twice", "hit the ball twice"),
    ("handled", "handled the ball"),
    ("absent", ABSENT),
)
NO_PLAYER = ""

logger = logging.getLogger(__name__)


class PlayerNames:
    """The names of the players, from the lineup or from the player included in a row."""

    def __init__(self, lineups: tuple[LineupPlayer, ...]) -> None:
        self._names = {player.player_id: player.name for player in lineups}

    def of(self, player_id: str | None, included: Any = None) -> str:
        """Return a player's name, `Player <id>` when it is unknown, and the empty text without an id."""
        if player_id is None:
            return NO_PLAYER
        return self.known(player_id, included) or f"Player {player_id}"

    def known(self, player_id: str, included: Any = None) -> str | None:
        """Return a player's name, or None when it is unknown."""
        return self._names.get(player_id) or player_name(row(included))


def player_name(player: Row) -> str | None:
    parts = [text(player.get("firstname")), text(player.get("lastname"))]
    return text(player.get("fullname")) or text(" ".join(part for part in parts if part))


@dataclass(frozen=True, slots=True)
class Score:
    """A row of the table of scores: the runs of a ball, or the dismissal of a batter."""

    name: str
    batter_runs: int = 0
    extras: Extras = field(default_factory=Extras)
    legal: bool = True
    four: bool = False
    six: bool = False
    out: bool = False


def score_from(score: Row) -> Score:
    name = (text(score.get("name")) or "").lower()
    runs, byes, leg_byes = (count(score.get(part)) for part in ("runs", "bye", "leg_bye"))
    no_ball, counted = count(score.get("noball")) > 0, score.get("ball") is None or flag(score.get("ball"))
    wide = not no_ball and ("wide" in name or (not counted and runs > 0 and "penalty" not in name))
    batter_runs = 0
    if wide:
        extras = Extras(wides=runs + byes + leg_byes)
    elif no_ball:
        penalty = count(score.get("noball_runs")) or 1
        batter_runs = max(0, runs - penalty)
        extras = Extras(no_balls=penalty, byes=byes, leg_byes=leg_byes)
    elif "penalty" in name:
        extras = Extras(penalty=runs, byes=byes, leg_byes=leg_byes)
    else:
        # "1 Leg Bye + 4 Runs" counts the four overthrows in both fields: five leg byes, and no run for the batter.
        extras = Extras(byes=byes, leg_byes=leg_byes)
        batter_runs = 0 if byes or leg_byes else runs
    return Score(
        name=name,
        batter_runs=batter_runs,
        extras=extras,
        legal=counted and not no_ball and not wide,
        four=flag(score.get("four")) and batter_runs > 0,
        six=flag(score.get("six")) and batter_runs > 0,
        out=flag(score.get("is_wicket")) or flag(score.get("out")),
    )


Scores = Mapping[str, Score]


def scores_by_id(table: Any) -> dict[str, Score]:
    """Return the table of scores by id."""

    def with_id(score: Row) -> tuple[str, Score]:
        return required_id(score, "id"), score_from(score)

    return dict(convert_rows("score", table, with_id))


def score_of(holder: Row, included: str, scores: Scores) -> Score | None:
    """Return the score included in a ball or a batting line, else that of the table, else None."""
    score = row(holder.get(included))
    if "name" in score or "runs" in score:
        return score_from(score)
    score_id = ident(holder.get("score_id"))
    return None if score_id is None else scores.get(score_id)


def dismissal_kind(name: str) -> str:
    """Return the usual word for a dismissal, or the provider's own in lower case when there is none."""
    return next((kind for part, kind in KINDS if part in name), name or "out")


def balls_of(fixture: Row, names: PlayerNames, scores: Scores) -> tuple[Ball, ...]:
    """Return all balls, oldest first. Of two rows with one id the later one counts; unreadable rows are left out."""
    balls: dict[int, Ball] = {}
    repeated: list[int] = []
    for ball in convert_rows("ball", fixture.get("balls"), lambda ball: _ball(ball, names, scores)):
        if ball.ball_id in balls:
            repeated.append(ball.ball_id)
        balls[ball.ball_id] = ball
    if repeated:
        logger.warning(
            "SportMonks: fixture %.40r repeats %d balls, the first is %d", fixture.get("id"), len(repeated), repeated[0]
        )
    return tuple(balls[ball_id] for ball_id in sorted(balls))


def _ball(ball: Row, names: PlayerNames, scores: Scores) -> Ball:
    position = overs(ball.get("ball"))
    if position is None:
        raise UnreadableRow("ball is not an over and a ball")
    batter_id = required_id(ball, "batsman_id")
    bowler_id = ident(ball.get("bowler_id"))
    crease = [ident(ball.get(f"batsman_{end}_on_creeze_id")) for end in ("one", "two")]
    non_striker_id = next((player for player in crease if player and player != batter_id), None)
    score = score_of(ball, "score", scores) or _unknown_score(ball)
    return Ball(
        ball_id=int(required_id(ball, "id")),
        innings=innings_number(ball),
        over=position[0],
        number=position[1],
        batter_id=batter_id,
        batter=names.of(batter_id, ball.get("batsman")),
        non_striker_id=non_striker_id or NO_PLAYER,
        non_striker=names.of(non_striker_id),
        bowler_id=bowler_id or NO_PLAYER,
        bowler=names.of(bowler_id, ball.get("bowler")),
        batter_runs=score.batter_runs,
        extras=score.extras,
        legal=score.legal,
        four=score.four,
        six=score.six,
        wickets=(_wicket(ball, score, batter_id, names),) if score.out else (),
    )


def _unknown_score(ball: Row) -> Score:
    """Return a score without runs for a ball whose score is unknown; the ball itself still shows a dismissal."""
    logger.warning("SportMonks: ball %.40r has the unknown score %.40r", ball.get("id"), ball.get("score_id"))
    if ident(ball.get("runout_by_id")):
        return Score("run out", out=True)
    if ident(ball.get("catchstump_id")):
        return Score("caught", out=True)
    return Score("out", out=ident(ball.get("batsmanout_id")) is not None)


def _wicket(ball: Row, score: Score, batter_id: str, names: PlayerNames) -> Wicket:
    player_id = ident(ball.get("batsmanout_id")) or batter_id
    name = names.of(player_id, ball.get("batsman") if player_id == batter_id else None)
    bowler_id = ident(ball.get("bowler_id"))
    return wicket_of(ball, "catchstump_id", score.name, (player_id, name), bowler_id, names)


def wicket_of(
    row: Row, keeper_field: str, score: str, batter: tuple[str, str], bowler_id: str | None, names: PlayerNames
) -> Wicket:
    """Return the dismissal of a batter (id and name) from a row. `keeper_field` has the id of catcher or keeper."""
    kind = dismissal_kind(score)
    keeper, thrower = ident(row.get(keeper_field)), ident(row.get("runout_by_id"))
    if kind == "caught" and keeper is not None and keeper == bowler_id:
        kind = "caught and bowled"
    fielder_ids = {"caught": [keeper], "stumped": [keeper], "run out": [thrower, keeper]}.get(kind, [])
    fielders = tuple(names.of(fielder) for fielder in fielder_ids if fielder)
    return Wicket(*batter, kind, fielders, kind in CREDITED_TO_BOWLER)


def balls_in_over(balls: tuple[Ball, ...], match_format: str | None) -> int:
    """Return 5 in a hundred-ball match in which no over has a sixth ball, else 6."""
    if match_format is None or "100" not in match_format:
        return 6
    return 6 if any(ball.number > 5 for ball in balls) else 5
