"""Matches and seasons to which records refer by id."""

from collections.abc import Sequence

import strawberry

from datastore.keyspace.matches import fixtures as keys
from datastore.matches.cricket import Match
from datastore.matches.leagues import League
from datastore.matches.team_seasons import Season
from resolvers.shared.context import Info


async def matches_by_id(ids: Sequence[str], info: Info) -> Sequence[Match | Exception | None]:
    return await info.context.fixtures.by_ids(ids, keys.FIXTURE)


def current_season(parent: strawberry.Parent[League]) -> Season | None:
    return Season(parent.current_season_id) if parent.current_season_id else None


def season(parent: strawberry.Parent[Match]) -> Season | None:
    return Season(parent.season_id) if parent.season_id else None
