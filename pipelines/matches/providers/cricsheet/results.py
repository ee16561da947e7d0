"""The result of a match, as a record with a line of text, from Cricsheet's `outcome`."""

from collections.abc import Callable

from datastore.matches.cricket import Result, ResultKind
from pipelines.matches.providers.cricsheet.format import By, CricsheetOutcome

AWARDED = "awarded"
PLAIN_RESULTS = {
    "draw": (ResultKind.DRAW, "Match drawn"),
    "tie": (ResultKind.TIE, "Match tied"),
    "no result": (ResultKind.NO_RESULT, "No result"),
}


def result_of(outcome: CricsheetOutcome, team_id: Callable[[str], str], *, super_over_tied: bool) -> Result | None:
    """Return the result, or None for a missing or unknown outcome. `team_id` returns the id of a team's name."""
    if outcome.winner is not None:
        return _win(outcome, outcome.winner, team_id(outcome.winner))
    if outcome.result not in PLAIN_RESULTS:
        return None
    kind, text = PLAIN_RESULTS[outcome.result]
    decided = _decider(outcome, super_over_tied)
    winner = outcome.eliminator or outcome.bowl_out
    return Result(
        kind,
        _with_method(f"{text} ({decided})" if decided else text, outcome.method),
        winner_team_id=team_id(winner) if winner else None,
        method=outcome.method,
        eliminator=winner is not None,
    )


def _win(outcome: CricsheetOutcome, winner: str, winner_id: str) -> Result:
    if outcome.method and outcome.method.lower() == AWARDED:
        text = f"{winner} were awarded the match"
        return Result(ResultKind.AWARDED, text, winner_team_id=winner_id, method=outcome.method)
    margin = _margin(outcome.by)
    text = f"{winner} won by {margin}" if margin else f"{winner} won"
    return Result(
        ResultKind.WIN,
        _with_method(text, outcome.method),
        winner_team_id=winner_id,
        by_runs=outcome.by.runs,
        by_wickets=outcome.by.wickets,
        by_innings=bool(outcome.by.innings),
        method=outcome.method,
    )


def _margin(by: By) -> str:
    """Return a text such as `7 wickets` or `an innings and 46 runs`."""
    parts = ["an innings"] if by.innings else []
    parts += [_count(number, unit) for number, unit in ((by.runs, "run"), (by.wickets, "wicket")) if number is not None]
    return " and ".join(parts)


def _count(number: int, unit: str) -> str:
    return f"{number} {unit}" if number == 1 else f"{number} {unit}s"


def _decider(outcome: CricsheetOutcome, super_over_tied: bool) -> str | None:
    if outcome.bowl_out:
        return f"{outcome.bowl_out} won the bowl-out"
    if outcome.eliminator and super_over_tied:
        return f"super over tied too, {outcome.eliminator} won on countback"
    return f"{outcome.eliminator} won the super over" if outcome.eliminator else None


def _with_method(text: str, method: str | None) -> str:
    return f"{text} ({method})" if method else text
