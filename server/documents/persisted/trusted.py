"""Trusted documents: the operator registers them in a manifest file or in the table."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from datastore.errors import DomainError
from datastore.primitives.lru_cache import LruCache
from datastore.primitives.single_flight import SingleFlight
from server.admission.budgets import CallerBudgets
from server.admission.callers import Caller
from server.admission.load_shedding import LoadShedder
from server.documents.cost.refusals import TooCostly, TooManyIncrements, TooManyValues
from server.documents.document_cache import Document, DocumentRejected, Documents, PreparedOperation
from server.documents.persisted.manifest import ManifestProblem, read_manifest, sha256_of
from server.documents.persisted.tool_marks import MarkedDocument, marked_documents
from server.settings import Misconfigured

# The interval at which the file of a manifest is checked for changes.
CHECK_INTERVAL_SECONDS = 2.0
# The times for which a text, and an unknown id, are cached.
KNOWN_SECONDS = 60.0
UNKNOWN_SECONDS = 5.0
MAX_CACHED = 4096
# The cost of an eventually consistent GetItem of up to 4 KB.
LOOKUP_UNITS = 0.5

_log = logging.getLogger(__name__)


class ManifestSource(Protocol):
    """A source of trusted documents."""

    async def text(self, document_id: str, caller: Caller) -> str | None:
        """Return the text with this id or SHA-256, or None.

        A lookup in the store is charged to the caller.

        Raises:
            OverBudget: the caller's budget does not suffice.
            DomainError: the lookup fails.
        """

    async def contains(self, text: str, caller: Caller) -> bool:
        """Return whether the text is exactly that of a document. Raises the same errors as `text`."""


@dataclass(frozen=True, slots=True)
class PreparedManifest:
    """The prepared documents of a manifest by id, and those of them that are tools."""

    documents: Mapping[str, Document]
    tools: Sequence[MarkedDocument]


def prepare_manifest(documents: Documents, raw: bytes) -> PreparedManifest:
    """Return the prepared documents of a manifest. Raises `ManifestProblem` with the problems of all of them."""
    texts: Mapping[str, str]
    try:
        texts, problems = read_manifest(raw), []
    except ManifestProblem as problem:
        texts, problems = problem.texts, problem.problems
    ready: dict[str, Document] = {}
    for document_id, text in texts.items():
        try:
            ready[document_id] = document = documents.check(text, trusted=True)
            for operation in document.operations:
                _check_cost(documents, operation)
        except DocumentRejected as rejection:
            problems += [f"{document_id}: {error.message}" for error in rejection.errors]
        except (TooCostly, TooManyIncrements, TooManyValues) as refusal:
            problems.append(f"{document_id}: {refusal}")
    tools: Sequence[MarkedDocument] = ()
    if ready:
        try:
            tools = marked_documents(raw, ready)
        except ManifestProblem as problem:
            problems += problem.problems
    if problems:
        raise ManifestProblem(problems)
    return PreparedManifest(ready, tools)


def _check_cost(documents: Documents, operation: PreparedOperation) -> None:
    """Raise the error of an operation whose estimate is beyond a limit, unless the estimate depends on variables."""
    if not operation.node.variable_definitions:
        documents.estimate(operation, {})
        if operation.incremental is not None:
            documents.check_parts(operation, {})


class ManifestFile:
    """A manifest in a file. Reading it prepares its documents, and pins them in the document cache."""

    def __init__(self, path: Path, documents: Documents) -> None:
        self._path = path
        self._documents = documents
        self._texts: Mapping[str, str] = {}
        #: The documents that are tools. A changed manifest replaces the sequence.
        self.tools: Sequence[MarkedDocument] = ()
        self._seen: tuple[int, int] | None = None

    def __len__(self) -> int:
        return len(set(self._texts.values()))

    def load(self) -> None:
        """Read the file. Raises `Misconfigured` if it cannot be read or is invalid."""
        try:
            self._seen = self._modification()
            ready = prepare_manifest(self._documents, self._path.read_bytes())
        except OSError as problem:
            raise Misconfigured(f"GATEWAY_DOCUMENTS: {self._path} cannot be read: {problem.strerror}.") from None
        except ManifestProblem as problem:
            raise Misconfigured(f"GATEWAY_DOCUMENTS: {self._path} cannot be used: {problem}.") from None
        self._documents.pin(ready.documents.values())
        texts = {document_id: document.text for document_id, document in ready.documents.items()}
        self._texts = {sha256_of(text): text for text in texts.values()} | texts
        self.tools = ready.tools

    async def watch(self) -> None:
        """Reload the file when it changes. If the new file is invalid, log this and keep the previous documents."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL_SECONDS)
            # A thread leaves the event loop free: preparing a thousand documents takes a second.
            await asyncio.to_thread(self.reload_if_changed)

    def reload_if_changed(self) -> None:
        """Reload the file if it has changed."""
        try:
            if self._modification() == self._seen:
                return
            self.load()
            _log.info("%s was reloaded: %d trusted documents", self._path, len(self))
        except OSError as problem:
            _log.warning("%s cannot be read (%s); the previous documents stay in use", self._path, problem.strerror)
        except Misconfigured as problem:
            _log.error("The previous trusted documents stay in use. %s", problem)

    def _modification(self) -> tuple[int, int]:
        status = self._path.stat()
        return status.st_mtime_ns, status.st_size

    async def text(self, document_id: str, caller: Caller) -> str | None:
        return self._texts.get(document_id)

    async def contains(self, text: str, caller: Caller) -> bool:
        return sha256_of(text) in self._texts


@dataclass(frozen=True, slots=True)
class _TableRead:
    """The result of a read, and the time of the read in seconds."""

    text: str | None
    at: float


class DocumentTable:
    """The trusted documents in the table. `read` returns the text of an id, and `clock` the time in seconds.

    Texts are cached for a minute. Unknown ids are cached for 5 s, in a cache of their own, so that invented ids do not
    evict documents. If a read fails, a cached text is used beyond its time.

    Because clients can invent ids, a read is charged to the caller, and `load` limits how many reads run at once.
    """

    def __init__(
        self,
        read: Callable[[str], Awaitable[str | None]],
        clock: Callable[[], float],
        budgets: CallerBudgets | None = None,
        load: LoadShedder | None = None,
    ) -> None:
        self._read = read
        self._clock = clock
        self._budgets = budgets
        self._load = load or LoadShedder(0)
        self._found = LruCache[str, _TableRead](MAX_CACHED)
        self._missing = LruCache[str, _TableRead](MAX_CACHED)
        self._reading = SingleFlight[str, str | None]()

    async def text(self, document_id: str, caller: Caller) -> str | None:
        now = self._clock()
        cached = self._found.get(document_id) or self._missing.get(document_id)
        if cached is not None and 0 <= now - cached.at < (UNKNOWN_SECONDS if cached.text is None else KNOWN_SECONDS):
            return cached.text
        if self._budgets is not None and document_id not in self._reading:
            await self._budgets.charge(caller, LOOKUP_UNITS)
        try:
            return await self._reading.join(document_id, lambda: self._fetch(document_id))
        except DomainError as problem:
            if cached is None or cached.text is None:
                raise
            _log.warning("The lookup of a trusted document failed; its cached text is used: %s", problem)
            self._cache(document_id, cached.text)
            return cached.text

    async def contains(self, text: str, caller: Caller) -> bool:
        return await self.text(sha256_of(text), caller) == text

    async def _fetch(self, document_id: str) -> str | None:
        async with self._load.slot():
            text = await self._read(document_id)
        self._cache(document_id, text)
        return text

    def _cache(self, document_id: str, text: str | None) -> None:
        self._found.pop(document_id)
        self._missing.pop(document_id)
        (self._missing if text is None else self._found).put(document_id, _TableRead(text, self._clock()))
