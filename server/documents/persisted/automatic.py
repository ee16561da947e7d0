"""Automatic persisted queries: a client sends a text once, and afterwards only its hash.

The protocol is Apollo's: https://www.apollographql.com/docs/apollo-server/performance/apq. It saves bytes and makes
queries short enough for GET. It does not restrict clients: any client may register a text.
"""

from typing import TYPE_CHECKING

from datastore.primitives.lru_cache import LruCache
from server.documents.persisted.manifest import sha256_of

if TYPE_CHECKING:
    from server.documents.persisted.redis import RedisTexts

MAX_TEXTS = 1000
MAX_BYTES = 4 * 1024 * 1024
MAX_TEXT_BYTES = 32 * 1024


class AutomaticDocuments:
    """A cache of the most recently used texts: at most `most` texts and `most_bytes`.

    `shared` is the store through which processes share the texts.
    """

    def __init__(
        self, shared: "RedisTexts | None" = None, *, most: int = MAX_TEXTS, most_bytes: int = MAX_BYTES
    ) -> None:
        self._shared = shared
        self._texts = LruCache[str, str](most, max_size=most_bytes, size_of=lambda _, text: _size(text))

    async def text(self, document_hash: str) -> str | None:
        """Return the text with this SHA-256, or None."""
        text = self._texts.get(document_hash)
        if text is not None:
            return text
        text = None if self._shared is None else await self._shared.get(document_hash)
        # Other processes write to the store: accept a text only under its own hash.
        if text is None or sha256_of(text) != document_hash:
            return None
        self._texts.put(document_hash, text)
        return text

    async def add(self, document_hash: str, text: str) -> None:
        """Register a valid text under its SHA-256, unless it is too long."""
        if document_hash in self._texts or _size(text) > MAX_TEXT_BYTES:
            return
        self._texts.put(document_hash, text)
        if self._shared is not None:
            await self._shared.put(document_hash, text)


def _size(text: str) -> int:
    return len(text.encode(errors="surrogatepass"))
