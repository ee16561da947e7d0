"""Steps and data for the tests of the scorebook."""

from datastore.matches.cricket import BatterStatus, InningsScore, MatchSnapshot, Scorecard
from tests.support.cricket_count import Json


def counts_of_snapshot(snapshot: MatchSnapshot, names: dict[str, str]) -> list[Json]:
    """Return a match in the form of `cricket_count`."""
    match = snapshot.match
    assert match.scorecards is not None
    return [_counted(score, card, names) for score, card in zip(match.innings, match.scorecards, strict=True)]


def _counted(score: InningsScore, card: Scorecard, names: dict[str, str]) -> Json:
    extras = score.extras
    idle = (BatterStatus.DID_NOT_BAT, BatterStatus.YET_TO_BAT)
    return {
        "team": names[score.team_id],
        "super_over": score.super_over,
        "declared": score.declared,
        "forfeited": score.forfeited,
        "runs": score.runs,
        "wickets": score.wickets,
        "overs": score.overs,
        "legal_balls": score.legal_balls,
        "extras": {name: getattr(extras, name) for name in ("byes", "leg_byes", "wides", "no_balls", "penalty")},
        "batting": {
            line.name: {name: getattr(line, name) for name in ("runs", "balls", "fours", "sixes", "status")}
            for line in card.batting
            if line.status not in idle
        },
        "bowling": {
            line.name: {
                name: getattr(line, name) for name in ("overs", "maidens", "runs", "wickets", "wides", "no_balls")
            }
            for line in card.bowling
        },
        "falls": [(fall.name, fall.runs) for fall in card.fall_of_wickets],
    }


def without_hits(counts: list[Json]) -> list[Json]:
    return [{name: value for name, value in line.items() if name not in ("fours", "sixes")} for line in counts]
