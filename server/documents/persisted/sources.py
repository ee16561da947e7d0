"""The persisted documents of a gateway, assembled from its settings."""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from server.admission.budgets import CallerBudgets
from server.admission.load_shedding import LoadShedder
from server.documents.document_cache import Documents
from server.documents.persisted.automatic import AutomaticDocuments
from server.documents.persisted.registry import DocumentRegistry
from server.documents.persisted.tool_marks import MarkedDocument
from server.documents.persisted.trusted import DocumentTable, ManifestFile, ManifestSource
from server.documents.settings import TABLE, DocumentSettings, DocumentsMode

if TYPE_CHECKING:
    from server.documents.persisted.redis import RedisTexts


class PersistedDocuments:
    """The document registry with its sources.

    `read` returns the text of an id from the table, and `clock` the time in seconds. With a `redis_url` processes share
    automatic persisted queries. Reads of the table are charged to `budgets`, and `load` limits how many run at once.
    """

    def __init__(
        self,
        settings: DocumentSettings,
        documents: Documents,
        read: Callable[[str], Awaitable[str | None]],
        clock: Callable[[], float],
        redis_url: str | None = None,
        budgets: CallerBudgets | None = None,
        load: LoadShedder | None = None,
    ) -> None:
        enforced = settings.mode is DocumentsMode.ENFORCE
        self._manifest: ManifestFile | None = None
        self._shared = _shared(redis_url) if redis_url and settings.automatic and not enforced else None
        source: ManifestSource | None = None
        if settings.mode is not DocumentsMode.OFF and settings.source == TABLE:
            source = DocumentTable(read, clock, budgets, load)
        elif settings.mode is not DocumentsMode.OFF and settings.source is not None:
            source = self._manifest = ManifestFile(Path(settings.source), documents)
        self.registry = DocumentRegistry(
            settings.mode,
            source,
            AutomaticDocuments(self._shared) if settings.automatic else None,
            admin_bypass=settings.admin_bypass,
        )

    def load(self) -> None:
        """Read the manifest if one is configured. Raises `Misconfigured` if it is invalid."""
        if self._manifest is not None:
            self._manifest.load()

    @property
    def tools(self) -> Sequence[MarkedDocument]:
        """The documents of the manifest that are tools. A changed manifest replaces the sequence."""
        return () if self._manifest is None else self._manifest.tools

    @property
    def watch(self) -> Callable[[], Coroutine[Any, Any, None]] | None:
        """The coroutine function that reloads a changed manifest; None without a manifest."""
        return None if self._manifest is None else self._manifest.watch

    async def aclose(self) -> None:
        """Close the connections to Redis."""
        if self._shared is not None:
            await self._shared.aclose()


def _shared(redis_url: str) -> "RedisTexts":
    # Imported late: its library is only loaded if it is used.
    from server.documents.persisted.redis import RedisTexts

    return RedisTexts(redis_url)
