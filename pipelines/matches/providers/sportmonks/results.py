"""The result of a SportMonks fixture. Its `note` is shown but not parsed: it has no fixed form."""

import logging

from datastore.matches.cricket import InningsScore, Match, MatchPhase, Result, ResultKind, Target
from pipelines.matches.providers.sportmonks.values import Row, flag, ident, text

# The values of `draw_noresult`, in lower case and without all characters that are not letters.
UNDECIDED = {
    "draw": ResultKind.DRAW,
    "drawn": ResultKind.DRAW,
    "matchdrawn": ResultKind.DRAW,
    "tie": ResultKind.TIE,
    "tied": ResultKind.TIE,
    "matchtied": ResultKind.TIE,
    "noresult": ResultKind.NO_RESULT,
    "nr": ResultKind.NO_RESULT,
    "abandoned": ResultKind.NO_RESULT,
}
TEXTS = {
    ResultKind.DRAW: "Match drawn",
    ResultKind.TIE: "Match tied",
    ResultKind.NO_RESULT: "No result",
    ResultKind.WIN: "Match won",
}
WICKETS = 10

logger = logging.getLogger(__name__)


def result_of(fixture: Row, match: Match, innings: tuple[InningsScore, ...], target: Target | None) -> Result | None:
    """Return the result of a match, or None when it is not over or the fixture contradicts itself."""
    if match.phase not in (MatchPhase.FINISHED, MatchPhase.ABANDONED):
        return None
    winner, undecided = ident(fixture.get("winner_team_id")), text(fixture.get("draw_noresult"))
    kind = None if undecided is None else UNDECIDED.get("".join(filter(str.isalpha, undecided.lower())))
    problem = _contradiction(match, winner, undecided, kind)
    if problem is not None:
        logger.warning("SportMonks: the result of fixture %s is left out: %s", match.match_id, problem)
        return None
    method = target.method if target is not None else None
    if winner is not None:
        return _win(fixture, match, winner, innings, target)
    return None if kind is None else Result(kind, match.note or TEXTS[kind], method=method)


def _contradiction(match: Match, winner: str | None, undecided: str | None, kind: ResultKind | None) -> str | None:
    if winner is not None and undecided is not None:
        return f"team {winner} won, and it was a {undecided[:40]!r}"
    if winner is not None and winner not in (match.home_team_id, match.away_team_id):
        return f"team {winner} won and did not play"
    if undecided is not None and kind is None:
        return f"unknown draw_noresult {undecided[:40]!r}"
    return None


def _win(fixture: Row, match: Match, winner: str, innings: tuple[InningsScore, ...], target: Target | None) -> Result:
    method = target.method if target is not None else None
    result = Result(ResultKind.WIN, match.note or TEXTS[ResultKind.WIN], winner_team_id=winner, method=method)
    if flag(fixture.get("super_over")) or any(total.super_over for total in innings):
        return Result(result.kind, result.text, winner_team_id=winner, method=method, eliminator=True)
    if len(innings) < 2:
        return result
    last = innings[-1]
    own = [total for total in innings if total.team_id == winner]
    others = [total for total in innings if total.team_id != winner]
    if last.team_id == winner:
        wickets = WICKETS - last.wickets
        return Result(result.kind, result.text, winner, by_wickets=wickets if wickets > 0 else None, method=method)
    needed = target.runs - 1 if target is not None and method else sum(total.runs for total in own)
    scored = last.runs if method else sum(total.runs for total in others)
    return Result(
        result.kind,
        result.text,
        winner,
        by_runs=needed - scored if needed > scored else None,
        by_innings=len(own) < len(others),
        method=method,
    )
