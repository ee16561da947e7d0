"""The innings of a SportMonks fixture: totals from `scoreboards` (or `runs`), figures from `batting` and `bowling`.

SportMonks updates totals, figures and balls at different times. They are not reconciled here.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from datastore.matches.cricket import (
    Ball,
    BatterStatus,
    BattingLine,
    BowlingLine,
    Extras,
    FallOfWicket,
    InningsScore,
    Partnership,
    Scorecard,
)
from pipelines.matches.providers.sportmonks.balls import PlayerNames, Scores, score_of, wicket_of
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
    whole,
)
from pipelines.matches.scoring.dismissals import dismissal_text
from pipelines.matches.scoring.scorebook import total_extras


@dataclass(frozen=True, slots=True)
class Play:
    """The facts about a fixture that the conversion of its innings needs."""

    names: PlayerNames
    scores: Scores
    balls: tuple[Ball, ...]
    balls_per_over: int = 6
    #: The number of innings before a super over.
    regular: int = 2
    #: Whether the match, or its last innings, is over.
    over: bool = False

    def of(self, number: int) -> list[Ball]:
        return [ball for ball in self.balls if ball.innings == number]


# Totals


def innings_of(fixture: Row, play: Play) -> tuple[InningsScore, ...]:
    """Return the total of each innings that has begun, in their order."""
    extras = dict(convert_rows("extras", fixture.get("scoreboards"), _extras))
    totals = convert_rows("run", fixture.get("runs"), lambda row: _total(row, whole(row.get("inning")), "score", play))
    totals += convert_rows("scoreboard", fixture.get("scoreboards"), lambda row: _scoreboard(row, play))
    by_number = {total.number: total for total in totals}
    return tuple(
        InningsScore(
            number=number,
            team_id=total.team_id,
            runs=total.runs,
            wickets=total.wickets,
            completed_overs=total.completed_overs,
            balls=total.balls,
            legal_balls=total.legal_balls,
            extras=extras[number] if number in extras else total_extras(ball.extras for ball in play.of(number)),
            super_over=number > play.regular,
        )
        for number, total in sorted(by_number.items())
    )


def _scoreboard(row: Row, play: Play) -> InningsScore | None:
    return _total(row, innings_number(row), "total", play) if row.get("type") == "total" else None


def _total(row: Row, number: int | None, runs: str, play: Play) -> InningsScore:
    if number is None or not 1 <= number <= 9:
        raise UnreadableRow("no innings")
    if whole(row.get(runs)) is None:
        raise UnreadableRow(f"{runs} is not a number")
    completed, balls = _bowled(row, play)
    return InningsScore(
        number=number,
        team_id=required_id(row, "team_id"),
        runs=count(row.get(runs)),
        wickets=count(row.get("wickets")),
        completed_overs=completed,
        balls=balls,
        legal_balls=completed * play.balls_per_over + balls,
    )


def _bowled(row: Row, play: Play) -> tuple[int, int]:
    """Return the completed overs and the balls after them; 15.6 is 16 overs."""
    completed, balls = overs(row.get("overs")) or (0, 0)
    return completed + balls // play.balls_per_over, balls % play.balls_per_over


def _extras(row: Row) -> tuple[int, Extras] | None:
    if row.get("type") != "extra":
        return None
    return innings_number(row), Extras(
        byes=count(row.get("bye")),
        leg_byes=count(row.get("leg_bye")),
        wides=count(row.get("wide")),
        no_balls=count(row.get("noball_runs")),
        penalty=count(row.get("penalty")),
    )


# Figures


def scorecards_of(fixture: Row, innings: tuple[InningsScore, ...], play: Play) -> tuple[Scorecard, ...]:
    """Return the figures of each innings that has a total, a batter, a bowler or a ball."""
    batting = _by_innings("batting line", fixture, "batting")
    bowling = _by_innings("bowling line", fixture, "bowling")
    begun = {ball.innings for ball in play.balls} | {total.number for total in innings}
    numbers = sorted(begun | batting.keys() | bowling.keys())
    return tuple(
        _scorecard(number, batting.get(number, []), bowling.get(number, []), play, play.over or number < numbers[-1])
        for number in numbers
    )


def _by_innings(kind: str, fixture: Row, name: str) -> dict[int, list[Row]]:
    rows: dict[int, list[Row]] = {}
    for number, row in convert_rows(kind, fixture.get(name), lambda row: (innings_number(row), row)):
        rows.setdefault(number, []).append(row)
    return rows


def _scorecard(number: int, batting: list[Row], bowling: list[Row], play: Play, closed: bool) -> Scorecard:
    balls = play.of(number)
    seen = {player for ball in balls for player in (ball.batter_id, ball.non_striker_id)}
    striker = None if closed else next_striker(balls, play.balls_per_over)
    ordered = sorted(batting, key=_sort)
    lines = convert_rows("batting line", ordered, lambda row: _batter(row, play, seen, closed, striker))
    return Scorecard(
        number=number,
        batting=tuple(lines),
        bowling=tuple(convert_rows("bowling line", sorted(bowling, key=_sort), lambda row: _bowler(row, play, closed))),
        fall_of_wickets=_fall_of_wickets(batting, lines),
        partnership=None if closed else _partnership(balls, lines),
    )


def _sort(row: Row) -> int:
    return count(row.get("sort"))


def _batter(row: Row, play: Play, seen: set[str], closed: bool, striker: str | None) -> BattingLine:
    player_id = required_id(row, "player_id")
    score = score_of(row, "result", play.scores)
    name = score.name if score is not None else ""
    status = _status(row, name, score is not None and score.out, player_id in seen, closed)
    line = BattingLine(
        player_id=player_id,
        name=play.names.of(player_id, row.get("batsman")),
        position=_sort(row),
        runs=count(row.get("score")),
        balls=count(row.get("ball")),
        fours=count(row.get("four_x")),
        sixes=count(row.get("six_x")),
        status=status,
        on_strike=status is BatterStatus.BATTING and player_id == striker,
    )
    if status not in (BatterStatus.OUT, BatterStatus.RETIRED, BatterStatus.ABSENT):
        return line
    bowler_id = ident(row.get("bowling_player_id"))
    batter = line.player_id, line.name
    wicket = wicket_of(row, "catch_stump_player_id", name, batter, bowler_id, play.names)
    return replace(
        line,
        how_out=wicket.kind,
        dismissal=dismissal_text(wicket, play.names.of(bowler_id, row.get("bowler"))),
        bowler_id=bowler_id if wicket.bowler_credited else None,
        fielders=wicket.fielders,
    )


def _status(row: Row, name: str, out: bool, seen: bool, closed: bool) -> BatterStatus:
    if "absent" in name:
        return BatterStatus.ABSENT
    if out:
        return BatterStatus.OUT
    if flag(row.get("active")) and not closed:
        return BatterStatus.BATTING
    if "retired" in name:
        return BatterStatus.RETIRED
    if seen or flag(row.get("active")) or count(row.get("ball")):
        return BatterStatus.NOT_OUT
    return BatterStatus.DID_NOT_BAT if closed else BatterStatus.YET_TO_BAT


def _bowler(row: Row, play: Play, closed: bool) -> BowlingLine:
    player_id = required_id(row, "player_id")
    completed, balls = _bowled(row, play)
    return BowlingLine(
        player_id=player_id,
        name=play.names.of(player_id, row.get("bowler")),
        completed_overs=completed,
        balls=balls,
        maidens=count(row.get("medians")),
        runs=count(row.get("runs")),
        wickets=count(row.get("wickets")),
        wides=count(row.get("wide")),
        no_balls=count(row.get("noball")),
        bowling=flag(row.get("active")) and not closed,
    )


def _fall_of_wickets(batting: list[Row], lines: list[BattingLine]) -> tuple[FallOfWicket, ...]:
    """Return the wickets in the order they fell, without wickets whose score is unknown."""
    out: Mapping[str, BattingLine] = {line.player_id: line for line in lines if line.status is BatterStatus.OUT}
    falls = []
    for row in batting:
        line, position = out.get(ident(row.get("player_id")) or ""), overs(row.get("fow_balls"))
        if line is not None and position is not None and (any(position) or count(row.get("fow_score"))):
            falls.append((position, count(row.get("fow_score")), line))
    ordered = sorted(falls, key=lambda fall: fall[:2])
    return tuple(
        FallOfWicket(wicket=index, runs=runs, over=f"{over}.{ball}", player_id=line.player_id, name=line.name)
        for index, ((over, ball), runs, line) in enumerate(ordered, start=1)
    )


def _partnership(balls: list[Ball], lines: list[BattingLine]) -> Partnership | None:
    last = max((index for index, ball in enumerate(balls) if ball.wickets), default=-1)
    stand = balls[last + 1 :]
    batters = tuple(line.player_id for line in lines if line.status is BatterStatus.BATTING)
    if not balls or not batters:
        return None
    return Partnership(
        runs=sum(ball.runs for ball in stand), balls=sum(ball.legal for ball in stand), batter_ids=batters
    )


def next_striker(balls: list[Ball], balls_per_over: int) -> str | None:
    """Return the id of the batter who faces the next ball, or None when it is unknown: at the start, after a wicket."""
    if not balls or balls[-1].wickets:
        return None
    last = balls[-1]
    extras = last.extras
    ran = last.batter_runs + extras.byes + extras.leg_byes + max(0, extras.wides - 1)
    over_ends = last.legal and last.number >= balls_per_over
    crossed = (ran % 2 == 1) is not over_ends
    return (last.non_striker_id if crossed else last.batter_id) or None
