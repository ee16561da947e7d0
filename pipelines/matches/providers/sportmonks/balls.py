"""SportMonks balls and what was scored on them, as balls of ours.

A score's `runs` have a no-ball's penalty and all of a wide in them, and never byes and leg byes:
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
    count,
    flag,
    ident,
    innings_number,
    needed_id,
    overs,
    readable,
    row,
    text,
)
from pipelines.matches.scoring.dismissals import ABSENT, CREDITED_TO_BOWLER

# The first that a score's name holds decides: "Catch Out (Sub)", "Clean Bowled", "LBW OUT", "Run Out + 1".
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
NOBODY = ""

logger = logging.getLogger(__name__)


class PlayerNames:
    """The players' names: those of the lineup, or as they came with a ball."""

    def __init__(self, lineups: tuple[LineupPlayer, ...]) -> None:
        self._names = {player.player_id: player.name for player in lineups}

    def of(self, player_id: str | None, included: Any = None) -> str:
        """Never empty for an id: what nobody named is called by its number."""
        if player_id is None:
            return NOBODY
        return self.known(player_id, included) or f"Player {player_id}"

    def known(self, player_id: str, included: Any = None) -> str | None:
        """None for a player nobody named."""
        return self._names.get(player_id) or player_name(row(included))


def player_name(player: Row) -> str | None:
    parts = [text(player.get("firstname")), text(player.get("lastname"))]
    return text(player.get("fullname")) or text(" ".join(part for part in parts if part))


@dataclass(frozen=True, slots=True)
class Score:
    """What a score says of a ball, or of how a batter is out."""

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
    no_ball, told_legal = count(score.get("noball")) > 0, score.get("ball") is None or flag(score.get("ball"))
    wide = not no_ball and ("wide" in name or (not told_legal and runs > 0 and "penalty" not in name))
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
        # "1 Leg Bye + 4 Runs" has the four overthrows in both: five leg byes, and nothing for the batter.
        extras = Extras(byes=byes, leg_byes=leg_byes)
        batter_runs = 0 if byes or leg_byes else runs
    return Score(
        name=name,
        batter_runs=batter_runs,
        extras=extras,
        legal=told_legal and not no_ball and not wide,
        four=flag(score.get("four")) and batter_runs > 0,
        six=flag(score.get("six")) and batter_runs > 0,
        out=flag(score.get("is_wicket")) or flag(score.get("out")),
    )


Scores = Mapping[str, Score]


def scores_by_id(table: Any) -> dict[str, Score]:
    """The table of scores, by id."""

    def numbered(score: Row) -> tuple[str, Score]:
        return needed_id(score, "id"), score_from(score)

    return dict(readable("score", table, numbered))


def score_of(holder: Row, included: str, scores: Scores) -> Score | None:
    """The score that came with a ball or a batter, or the table's; None when neither knows it."""
    told = row(holder.get(included))
    if "name" in told or "runs" in told:
        return score_from(told)
    score_id = ident(holder.get("score_id"))
    return None if score_id is None else scores.get(score_id)


def dismissal_kind(name: str) -> str:
    """The usual word for a dismissal; the provider's own, in lower case, where there is none."""
    return next((kind for part, kind in KINDS if part in name), name or "out")


def balls_of(fixture: Row, names: PlayerNames, scores: Scores) -> tuple[Ball, ...]:
    """All balls, oldest first. Of two with one id the later row counts; one that cannot be read is left out."""
    found: dict[int, Ball] = {}
    repeated: list[int] = []
    for ball in readable("ball", fixture.get("balls"), lambda ball: _ball(ball, names, scores)):
        if ball.ball_id in found:
            repeated.append(ball.ball_id)
        found[ball.ball_id] = ball
    if repeated:
        logger.warning(
            "SportMonks: fixture %.40r repeats %d balls, the first is %d", fixture.get("id"), len(repeated), repeated[0]
        )
    return tuple(found[ball_id] for ball_id in sorted(found))


def _ball(ball: Row, names: PlayerNames, scores: Scores) -> Ball:
    place = overs(ball.get("ball"))
    if place is None:
        raise UnreadableRow("ball is no over and ball")
    batter_id = needed_id(ball, "batsman_id")
    bowler_id = ident(ball.get("bowler_id"))
    crease = [ident(ball.get(f"batsman_{end}_on_creeze_id")) for end in ("one", "two")]
    non_striker_id = next((player for player in crease if player and player != batter_id), None)
    score = score_of(ball, "score", scores) or _unknown_score(ball)
    return Ball(
        ball_id=int(needed_id(ball, "id")),
        innings=innings_number(ball),
        over=place[0],
        number=place[1],
        batter_id=batter_id,
        batter=names.of(batter_id, ball.get("batsman")),
        non_striker_id=non_striker_id or NOBODY,
        non_striker=names.of(non_striker_id),
        bowler_id=bowler_id or NOBODY,
        bowler=names.of(bowler_id, ball.get("bowler")),
        batter_runs=score.batter_runs,
        extras=score.extras,
        legal=score.legal,
        four=score.four,
        six=score.six,
        wickets=(_wicket(ball, score, batter_id, names),) if score.out else (),
    )


def _unknown_score(ball: Row) -> Score:
    """What the ball itself says where its score is unknown: that somebody is out, not what was scored."""
    logger.warning("SportMonks: ball %.40r has the unknown score %.40r", ball.get("id"), ball.get("score_id"))
    if ident(ball.get("runout_by_id")):
        return Score("run out", out=True)
    if ident(ball.get("catchstump_id")):
        return Score("caught", out=True)
    return Score("out", out=ident(ball.get("batsmanout_id")) is not None)


def _wicket(ball: Row, score: Score, batter_id: str, names: PlayerNames) -> Wicket:
    player_id = ident(ball.get("batsmanout_id")) or batter_id
    kind = dismissal_kind(score.name)
    keeper = ident(ball.get("catchstump_id"))
    if kind == "caught" and keeper is not None and keeper == ident(ball.get("bowler_id")):
        kind = "caught and bowled"
    fielders = [keeper] if kind in ("caught", "stumped") else []
    if kind == "run out":
        fielders = [ident(ball.get("runout_by_id")), keeper]
    return Wicket(
        player_id=player_id,
        name=names.of(player_id, ball.get("batsman") if player_id == batter_id else None),
        kind=kind,
        fielders=tuple(names.of(fielder) for fielder in fielders if fielder),
        bowler_credited=kind in CREDITED_TO_BOWLER,
    )


def balls_in_over(balls: tuple[Ball, ...], match_format: str | None) -> int:
    """Five in a hundred-ball match, unless a sixth is told of; six everywhere else."""
    if match_format is None or "100" not in match_format:
        return 6
    return 6 if any(ball.number > 5 for ball in balls) else 5
