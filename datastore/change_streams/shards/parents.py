"""The parents of shards, by which positions before and after splits are compared."""

from collections.abc import Collection, Iterable, Iterator, Mapping

from datastore.change_streams.replay.resume_token import Key, Positions, idle_since
from datastore.change_streams.shards.checkpoints import sequence_at

# AWS lists shards for a day: 100 open shards that are replaced every four hours are 700 listed shards.
MAX_KNOWN = 10_000


class Parents:
    """The parent of each known shard; None for a shard without a parent, or whose parent is no longer listed."""

    def __init__(self) -> None:
        self._parents: dict[Key, Key | None] = {}

    def __contains__(self, key: Key) -> bool:
        return key in self._parents

    def clear(self) -> None:
        self._parents.clear()

    def learn(self, key: Key, parent: Key | None) -> None:
        if parent is not None or key not in self._parents:
            self._parents[key] = parent

    def keep(self, keys: Collection[Key]) -> None:
        """Forget all other shards if more than `MAX_KNOWN` are known."""
        if len(self._parents) > MAX_KNOWN:
            self._parents = {key: parent for key, parent in self._parents.items() if key in keys}

    def ancestors(self, key: Key) -> Iterator[Key]:
        """Yield the shard's known ancestors, the nearest first."""
        parent = self._parents.get(key)
        while parent is not None:
            yield parent
            parent = self._parents.get(parent)

    def all_ancestors(self, keys: Iterable[Key]) -> set[Key]:
        """Return the known ancestors of all these shards."""
        found: set[Key] = set()
        for key in keys:
            for ancestor in self.ancestors(key):
                if ancestor in found:
                    break
                found.add(ancestor)
        return found

    def is_known(self, positions: Positions) -> bool:
        """Return whether each shard of the positions is known, or is the parent of a known shard."""
        ended = {parent for key in positions if (parent := self._parents.get(key)) is not None}
        return bool(positions) and all(key in self._parents or key in ended for key in positions)

    def lowest(self, several: Iterable[Positions]) -> dict[Key, str]:
        """Return positions that precede all of the given ones."""
        lowest: dict[Key, str] = {}
        for positions in several:
            for key, position in positions.items():
                lowest[key] = min(lowest.get(key, position), position, key=_order)
        covered = {key for key in lowest if any(ancestor in lowest for ancestor in self.ancestors(key))}
        return {key: position for key, position in lowest.items() if key not in covered}


class Seen:
    """The changes of a stream that a client at these positions has seen."""

    def __init__(self, parents: Parents, positions: Mapping[Key, str]) -> None:
        self.positions = dict(positions)
        self._parents = parents
        self.ended = parents.all_ancestors(positions)

    def before(self, key: Key) -> str | None:
        """Return the client's position in a shard; None for a shard that was read to its end."""
        return None if key in self.ended else self.positions.get(key, "")

    def is_related(self, key: Key) -> bool:
        """Return whether the positions name the shard, one of its ancestors or one of its descendants."""
        if key in self.positions or key in self.ended:
            return True
        return any(ancestor in self.positions or ancestor in self.ended for ancestor in self._parents.ancestors(key))

    def move(self, key: Key, position: str) -> None:
        """Note that the client has seen a change of the shard."""
        if key not in self.positions:
            for ancestor in self._parents.ancestors(key):
                self.ended.add(ancestor)
                self.positions.pop(ancestor, None)
        self.positions[key] = position


def _order(position: str) -> tuple[int, int]:
    """Return a sort key of positions in one shard: its start, then sequences, then the times of joining."""
    since = idle_since(position)
    return (2, since) if since is not None else (1 if position else 0, sequence_at(position) or 0)
