"""Who may see a post: the one rule, asked wherever a post can be reached."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from datastore.keyspace.feeds import follows as keys
from datastore.model.access_patterns import AccessPattern
from datastore.session.store import Store


class Visibility(StrEnum):
    """Who may see a post: everybody, the author's followers, or the author alone."""

    PUBLIC = "public"
    FOLLOWERS = "followers"
    PRIVATE = "private"


VISIBILITIES: Mapping[str, Visibility] = {visibility.value: visibility for visibility in Visibility}


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who looks: a user, or nobody in particular. Operators see all."""

    user_id: str | None = None
    sees_all: bool = False


class VisibilityPolicy:
    """What a viewer may see. Whether they follow an author is read when it matters, batched like all point reads.

    Who they are is asked when it matters, too: what is for everybody is the same for everybody.
    """

    def __init__(self, store: Store, viewer: Viewer | Callable[[], Viewer]) -> None:
        self._store = store
        self._viewer = viewer

    @property
    def viewer(self) -> Viewer:
        if not isinstance(self._viewer, Viewer):
            self._viewer = self._viewer()
        return self._viewer

    async def allows(self, author_id: str, visibility: Visibility, pattern: AccessPattern = keys.FOLLOWING) -> bool:
        """Whether the viewer may see a post of that author. `pattern` may be one that reads consistently."""
        if visibility is Visibility.PUBLIC or self.is_own(author_id):
            return True
        return visibility is Visibility.FOLLOWERS and await self.follows(author_id, pattern)

    async def follows(self, author_id: str, pattern: AccessPattern = keys.FOLLOWING) -> bool:
        if self.viewer.user_id is None:
            return False
        return await self._store.get(pattern, keys.following(self.viewer.user_id, author_id)) is not None

    def will_ask(self, author_id: str, pattern: AccessPattern = keys.FOLLOWING) -> None:
        """Have it read with what is read now whether the viewer follows an author of posts for followers."""
        if self.viewer.user_id is not None and not self.is_own(author_id):
            self._store.prefetch(pattern, keys.following(self.viewer.user_id, author_id))

    def is_own(self, author_id: str) -> bool:
        """Whether the viewer sees all of an author's posts."""
        return self.viewer.sees_all or self.viewer.user_id == author_id
