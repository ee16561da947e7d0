"""Follows of matches: which user follows which side of a match (FOL-1 … FOL-6)."""

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

from datastore.dynamodb.records import readable_records, record
from datastore.errors import BadUserInput, NotFound
from datastore.items import attributes as stored
from datastore.items.repository import Repository
from datastore.items.stored_item import StoredItem
from datastore.keyspace.matches import match_follows as keys
from datastore.keyspace.matches.match_follows import MATCH_FOLLOWS
from datastore.matches.cricket import Match
from datastore.model.access_patterns import consistently
from datastore.model.composite_keys import key_of
from datastore.model.timestamps import iso, to_seconds
from datastore.session.optimistic_locking import PUT_VERSIONS, updated_record, version_of, version_values
from datastore.session.pagination import Page, Span, read_page

LIFETIME = timedelta(hours=48)


class MatchFollow(StoredItem, key=keys.match_follow):
    """A user's follow of a match, from the side of `team_id`."""

    match_id: str = stored.part()
    user_id: str = stored.part(typical=36)
    team_id: str = stored.text("teamId")
    created_at: datetime = stored.moment("createdAt")
    expires_at: datetime = stored.seconds("expiresAt")
    version: int = stored.version(default=0)


class MatchFollows(Repository):
    """One method for each access pattern. `now` is the time of the request. Expired follows are not returned."""

    async def by_key(self, match_id: str, user_id: str, *, consistent: bool = False) -> MatchFollow | None:
        """FOL-1: return a user's follow of a match, or None. Batched with other point reads."""
        pattern = consistently(keys.FOLLOW_OF_USER, consistent)
        return record(MatchFollow.decoder, await self._store.get(pattern, keys.match_follow(match_id, user_id)))

    async def of_match(self, match_id: str, span: Span) -> Page:
        """FOL-2: return the followers of a match, by user id."""
        return await read_page(self._store, keys.FOLLOWERS, [{"partition": match_id}], span)

    async def pages_of_match(self, match_id: str) -> AsyncIterator[list[MatchFollow]]:
        """FOL-2: yield the followers of a match in pages. Damaged items are logged and omitted."""
        async for items in self._store.query_pages(keys.FOLLOWERS, {"partition": match_id}):
            if follows := readable_records(MatchFollow.decoder, items):
                yield follows

    async def follow(self, match: Match, user_id: str, team_id: str) -> MatchFollow:
        """FOL-3: follow a side of a match until 48 hours after its start. An existing follow keeps its `created_at`.

        Raises `BadUserInput` if the team does not play, or the match started more than 48 hours ago.
        """
        if team_id not in (match.home_team_id, match.away_team_id):
            raise _not_a_side()
        expires_at = match.start_time + LIFETIME
        if expires_at <= self._now:
            raise BadUserInput("This match started more than 48 hours ago: follow a later one.", field="matchId")
        key = keys.match_follow(match.match_id, user_id)
        values: dict[str, Any] = {
            "team": team_id,
            "sides": {match.home_team_id, match.away_team_id},
            "expires": to_seconds(expires_at),
            "createdAt": iso(self._now),
            "begun": PUT_VERSIONS.initial(self._now, (MATCH_FOLLOWS.name, key)),
            "one": 1,
        }
        written = await self._store.update(keys.FOLLOW, key, **values)
        assert written.item is not None, "An update without a condition returns the item."
        return MatchFollow.decoder(written.item)

    async def unfollow(self, match_id: str, user_id: str) -> MatchFollow | None:
        """FOL-4: delete a follow. Return it as it was, or None if there was none."""
        key = keys.match_follow(match_id, user_id)
        written = await self._store.delete(keys.UNFOLLOW, key)
        if written.item is not None:
            PUT_VERSIONS.observe((MATCH_FOLLOWS.name, key), version_of(written.item))
        return record(MatchFollow.decoder, written.item)

    async def change_team(self, match_id: str, user_id: str, team_id: str, expected: int | None = None) -> MatchFollow:
        """FOL-5: follow the other side of a match.

        Raises `NotFound` if there is no follow, `Outdated` if its version is not the expected one, `BadUserInput` for a
        team that does not play.
        """
        values: dict[str, Any] = {"team": team_id, "one": 1}
        key = keys.match_follow(match_id, user_id)
        written = await self._store.update(keys.CHANGE_TEAM, key, **values, **version_values(expected))
        if written.item is None:
            raise NotFound(f"You do not follow the match {match_id!r}.")
        return updated_record(written, expected, {"teamId": team_id}, MatchFollow.decoder, _not_a_side)

    async def remove_all(self, match_id: str) -> int:
        """FOL-6: delete all follows of a match. Return their number. Raises `Throttled` if some remain."""
        removed = 0
        values = {"partition": match_id}
        async for items in self._store.query_pages(
            keys.REMOVE_FOLLOWS, values, attributes=MATCH_FOLLOWS.key_attributes()
        ):
            await self._store.write_all(keys.REMOVE_FOLLOWS, deletes=[key_of(MATCH_FOLLOWS, item) for item in items])
            removed += len(items)
        return removed


def _not_a_side() -> BadUserInput:
    return BadUserInput("`teamId` must be one of the two teams that play.", field="teamId")
