"""The visibility policy: which viewer may see which post. Every read of posts applies it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from msgspec import Struct

from datastore.dynamodb.records import existence
from datastore.keyspace.feeds import follows as keys
from datastore.model.access_patterns import AccessPattern
from datastore.session.store import Store


class Visibility(StrEnum):
    """The audience of a post: everyone, the author's followers, or the author alone."""

    PUBLIC = "public"
    FOLLOWERS = "followers"
    PRIVATE = "private"


@dataclass(frozen=True, slots=True)
class Viewer:
    """The user on whose behalf posts are read; an anonymous viewer has no `user_id`. Operators see all posts."""

    user_id: str | None = None
    sees_all: bool = False


class VisibilityPolicy(Struct, eq=False):
    """The posts that a viewer may see. A follow is read only if the decision needs it, batched like all point reads.

    A callable `viewer` is called only if the decision needs it, so that results for public posts stay shareable.
    """

    _store: Store
    _viewer: Viewer | Callable[[], Viewer]

    @property
    def viewer(self) -> Viewer:
        if not isinstance(self._viewer, Viewer):
            self._viewer = self._viewer()
        return self._viewer

    async def allows(self, author_id: str, visibility: Visibility, pattern: AccessPattern = keys.FOLLOWING) -> bool:
        """Return whether the viewer may see a post of the author. `pattern` may be one that reads consistently."""
        if visibility is Visibility.PUBLIC or self.sees_all_of(author_id):
            return True
        return visibility is Visibility.FOLLOWERS and await self.follows(author_id, pattern)

    async def follows(self, author_id: str, pattern: AccessPattern = keys.FOLLOWING) -> bool:
        if self.viewer.user_id is None:
            return False
        return await self._store.get(pattern, keys.following(self.viewer.user_id, author_id)) is not None

    async def are_followed(self, author_ids: Sequence[str]) -> list[bool | Exception]:
        """Return whether the viewer follows each author, or the error of its read."""
        viewer = self.viewer.user_id
        if viewer is None:
            return [False] * len(author_ids)
        follows = [keys.following(viewer, author_id) for author_id in author_ids]
        return existence(await self._store.find_all(keys.FOLLOWING, follows))

    def prefetch_follow(self, author_id: str, pattern: AccessPattern = keys.FOLLOWING) -> None:
        """Add the viewer's follow of the author to the current batch of reads."""
        if self.viewer.user_id is not None and not self.sees_all_of(author_id):
            self._store.prefetch(pattern, keys.following(self.viewer.user_id, author_id))

    def sees_all_of(self, author_id: str) -> bool:
        """Return whether the viewer sees all posts of the author."""
        return self.viewer.sees_all or self.viewer.user_id == author_id
