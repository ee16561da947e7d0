"""Matches converted from the samples of SportMonks payloads."""

from datastore.matches.cricket import (
    Match,
    MatchSnapshot,
)
from pipelines.matches.providers.sportmonks.balls import scores_by_id
from pipelines.matches.providers.sportmonks.fixtures import snapshot_of
from tests.support.sportmonks_samples import (
    SCORES,
    Json,
    fixture_row,
    lineup,
)

TABLE = scores_by_id(SCORES)


def snapshot(**changes: Json) -> MatchSnapshot:
    return snapshot_of(fixture_row(lineup=lineup(), **changes), {}, TABLE)


def match(**changes: Json) -> Match:
    return snapshot(**changes).match
