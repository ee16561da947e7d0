"""Matches and seasons to which records refer by id."""

from collections.abc import Sequence
from typing import Protocol

import strawberry

from datastore.keyspace.matches import fixtures as keys
from datastore.matches.cricket import Match
from datastore.matches.team_seasons import Season
from resolvers.shared.context import Info


class OfSeason(Protocol):
    """A record that may have a season."""

    @property
    def season_id(self) -> str | None: ...


async def matches_by_id(ids: Sequence[str], info: Info) -> Sequence[Match | Exception | None]:
    return await info.context.fixtures.by_ids(ids, keys.FIXTURE)


def season(parent: strawberry.Parent[OfSeason]) -> Season | None:
    return Season(parent.season_id) if parent.season_id else None
