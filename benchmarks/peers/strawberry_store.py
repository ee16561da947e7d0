"""The reads of the Strawberry resolvers."""

import asyncio
from collections.abc import Callable

from strawberry.dataloader import DataLoader

from benchmarks.peers.clients import Client, Item, Key

FEED = "feed"
BATCH_KEYS = 100
# A feed's first page begins with its sources. The Query allows for this number of them.
SOURCES_EXPECTED = 8


def last_part(key: str) -> str:
    return key.rpartition("#")[2]


class Store:
    """Dataloaders of items by id, and lists. Each request has an instance."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.users = self._loader(
            FEED, lambda id: {"PK": f"USER#{id}", "SK": "META"}, lambda item: last_part(item["PK"])
        )
        self.posts = self._loader(
            FEED, lambda id: {"PK": f"POST#{id}", "SK": "META"}, lambda item: last_part(item["PK"])
        )
        self.matches = self._loader("cricket-fixtures", lambda id: {"matchId": id}, lambda item: str(item["matchId"]))
        self.teams = self._loader("cricket-teams", lambda id: {"teamId": id}, lambda item: str(item["teamId"]))
        # All lists of a page arrive together, so that their users are read in one batch.
        self.comments: DataLoader[tuple[str, int], list[Item]] = DataLoader(self._comments)

    def _loader(
        self, table: str, key_of: Callable[[str], Key], id_of: Callable[[Item], str]
    ) -> DataLoader[str, Item | None]:
        """Return a dataloader that reads one key by GetItem, and several by BatchGetItem until all are processed."""

        async def load(ids: list[str]) -> list[Item | None]:
            if len(ids) == 1:
                return [await self._client.get(table, key_of(ids[0]))]
            found: dict[str, Item] = {}
            keys = [key_of(id) for id in ids]
            while keys:
                items, keys = await self._client.batch_get(table, keys)
                found |= {id_of(item): item for item in items}
            return [found.get(id) for id in ids]

        return DataLoader(load, max_batch_size=BATCH_KEYS)

    async def posts_by_author(self, author_id: str, first: int) -> list[Item]:
        """Return `first` posts of an author and one more, newest first."""
        return await self._client.query(
            {
                "TableName": FEED,
                "IndexName": "GSI1",
                "KeyConditionExpression": "GSI1PK = :partition",
                "FilterExpression": "visibility <> :private",
                "ExpressionAttributeValues": {":partition": f"USER#{author_id}", ":private": "private"},
                "ScanIndexForward": False,
                "Limit": first + 1,
            }
        )

    async def home_feed(self, user_id: str, first: int) -> list[Item]:
        """Return `first` entries of a user's feed and one more, newest first."""
        items = await self._client.query(
            {
                "TableName": FEED,
                "IndexName": "GSI3",
                "KeyConditionExpression": "GSI3PK = :partition",
                "ExpressionAttributeValues": {":partition": f"FEED#{user_id}"},
                "ScanIndexForward": False,
                "Limit": first + 1 + SOURCES_EXPECTED,
            }
        )
        return [item for item in items if not item["SK"].startswith("SOURCE#")][: first + 1]

    async def _comments(self, lists: list[tuple[str, int]]) -> list[list[Item]]:
        return await asyncio.gather(*[self._comments_on(post_id, first) for post_id, first in lists])

    async def _comments_on(self, post_id: str, first: int) -> list[Item]:
        return await self._client.query(
            {
                "TableName": FEED,
                "KeyConditionExpression": "PK = :partition AND begins_with(SK, :prefix)",
                "ExpressionAttributeValues": {":partition": f"POST#{post_id}", ":prefix": "COMMENT#"},
                "ScanIndexForward": True,
                "Limit": first + 1,
            }
        )
