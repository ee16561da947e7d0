"""Which text stands for what a client asks, and whether it may be executed: by id, by hash, or as it is sent."""

import logging
from collections import OrderedDict
from typing import Any, NamedTuple

from datastore.errors import BadUserInput, DomainError, Forbidden, NotFound
from datastore.model.identity import Role
from datastore.model.log_redaction import without_emails
from server.admission.budgets import OverBudget
from server.admission.callers import Caller
from server.documents.document_cache import Document, DocumentText
from server.documents.persisted.automatic import AutomaticDocuments
from server.documents.persisted.manifest import LONGEST_ID, is_hash, plain_id, sha256_of
from server.documents.persisted.trusted import ManifestSource
from server.documents.request import GraphQLParams
from server.documents.settings import DocumentsMode

HASHES_TOLD = 10_000

_log = logging.getLogger(__name__)


class PersistedQueryNotFound(DomainError):
    """The words and the code that clients of Apollo's protocol wait for: they send the text then."""

    code = "PERSISTED_QUERY_NOT_FOUND"

    def __init__(self) -> None:
        super().__init__("PersistedQueryNotFound")


class PersistedQueryNotSupported(DomainError):
    """Likewise: they send the text then, and no hashes from then on."""

    code = "PERSISTED_QUERY_NOT_SUPPORTED"

    def __init__(self) -> None:
        super().__init__("PersistedQueryNotSupported")


class DocumentReference(NamedTuple):
    """The id that an operation names, and whether it does so as Apollo's protocol has it."""

    document_id: str
    automatic: bool


class DocumentRegistry:
    """Trusted documents from a `source`, and texts that clients had kept under their hash (`automatic`).

    `admin_bypass`: whether admins may run any document though only trusted ones run. GraphiQL needs that.
    `unregistered` counts the operations that came with a document that is not registered, where that is logged.
    """

    def __init__(
        self,
        mode: DocumentsMode = DocumentsMode.OFF,
        source: ManifestSource | None = None,
        automatic: AutomaticDocuments | None = None,
        *,
        admin_bypass: bool = True,
    ) -> None:
        self._mode = mode
        self._source = None if mode is DocumentsMode.OFF else source
        self._automatic = None if mode is DocumentsMode.ENFORCE else automatic
        self._admin_bypass = admin_bypass
        # Whether it matters of a text that it is registered.
        self._asks = self._source is not None and mode is not DocumentsMode.PREFER
        self._told: OrderedDict[str, None] = OrderedDict()
        self.unregistered = 0

    def plain_text(self, params: GraphQLParams) -> DocumentText | None:
        """A text that comes without an id, where it does not matter whether it is registered: as most do."""
        if self._asks or params.query is None or params.document_id is not None:
            return None
        if params.extensions and "persistedQuery" in params.extensions:
            return None
        return DocumentText(params.query)

    async def resolve(self, params: GraphQLParams, caller: Caller) -> DocumentText:
        """The text to execute.

        Raises `BadUserInput` for an id that is none or not that of the text beside it, `NotFound` for one that nothing
        is known by, `PersistedQueryNotFound` or `PersistedQueryNotSupported` for such a hash, and `Forbidden` for a
        text that is not registered where it has to be.
        """
        named = _named(params)
        if params.query is not None:
            await self._check(named, params.query, caller)
            return DocumentText(params.query, await self._admit(params.query, params.name, caller))
        if named is None:
            raise BadUserInput("Send a query, or the documentId of a known document.")
        trusted = await self._trusted(named.document_id, caller)
        if trusted is not None:
            return DocumentText(trusted, trusted=True)
        return DocumentText(await self._remembered(named, params, caller))

    async def on_valid(self, params: GraphQLParams, document: Document) -> None:
        """Told that the text is a valid document: one that came with its hash is known by it from now on."""
        if self._automatic is None or params.query is None:
            return
        named = _named(params)
        if named is not None and named.automatic and is_hash(named.document_id):
            await self._automatic.add(named.document_id, document.text)

    async def _trusted(self, document_id: str, caller: Caller) -> str | None:
        return None if self._source is None else await self._source.text(document_id, caller)

    async def _remembered(self, named: DocumentReference, params: GraphQLParams, caller: Caller) -> str:
        if not named.automatic or self._mode is DocumentsMode.ENFORCE:
            raise NotFound("No document is known by this id.", field=_field(named))
        if self._automatic is None:
            raise PersistedQueryNotSupported
        text = await self._automatic.text(named.document_id)
        if text is None:
            raise PersistedQueryNotFound
        await self._admit(text, params.name, caller)
        return text

    async def _check(self, named: DocumentReference | None, text: str, caller: Caller) -> None:
        """An id beside a text has to be that text's. A name that nothing is known by passes; it is not looked at."""
        if named is None:
            return
        if is_hash(named.document_id):
            belongs = sha256_of(text) == named.document_id
        else:
            known = await self._trusted(named.document_id, caller)
            belongs = known == text or (known is None and not named.automatic)
        if not belongs:
            raise BadUserInput(f"{_field(named)} does not belong to the query that came with it.", field=_field(named))

    async def _admit(self, text: str, name: str | None, caller: Caller) -> bool:
        """Whether the text is known to be registered: it is asked where that matters. Raises `Forbidden`."""
        if self._source is None or not self._asks:
            return False
        if self._mode is DocumentsMode.LOG:
            await self._note(text, name, caller)
            return False
        if self._bypasses(caller):
            return False
        if not await self._source.contains(text, caller):
            raise Forbidden("Only registered documents run here: send the documentId of one, or its exact text.")
        return True

    def _bypasses(self, caller: Caller) -> bool:
        return self._admin_bypass and caller.identity is not None and caller.identity.role is Role.ADMIN

    async def _note(self, text: str, name: str | None, caller: Caller) -> None:
        """Count an operation that is not registered, and tell of its text once. Nothing fails for that."""
        assert self._source is not None
        try:
            if await self._source.contains(text, caller):
                return
        except OverBudget:  # nor is it told: the caller is, in a moment
            return
        except DomainError as problem:
            _log.warning("It cannot be told whether a document is registered: %s", problem)
            return
        self.unregistered += 1
        document_hash = sha256_of(text)
        if document_hash not in self._told:
            self._told[document_hash] = None
            if len(self._told) > HASHES_TOLD:
                self._told.popitem(last=False)
            shown = "-" if name is None else without_emails(name)[:LONGEST_ID]
            _log.warning("A document that is not registered was sent: sha256 %s, operation %r", document_hash, shown)


def names_document(params: GraphQLParams) -> bool:
    """Whether it names its document by an id, and brings no text."""
    return params.query is None and _named(params) is not None


def names_hash(params: GraphQLParams) -> bool:
    """Whether that id is the SHA-256 of the text, for which it stands for ever."""
    named = _named(params)
    return named is not None and is_hash(named.document_id)


def _named(params: GraphQLParams) -> DocumentReference | None:
    by_hash = _persisted_query((params.extensions or {}).get("persistedQuery"))
    if params.document_id is None:
        return None if by_hash is None else DocumentReference(by_hash, True)
    if len(params.document_id) > LONGEST_ID:
        raise BadUserInput(f"documentId may have at most {LONGEST_ID} characters.", field="documentId")
    document_id = plain_id(params.document_id)
    if by_hash not in (None, document_id):
        raise BadUserInput("documentId and extensions.persistedQuery name two documents.", field="documentId")
    return DocumentReference(document_id, False)


def _persisted_query(extension: Any) -> str | None:
    """The hash in Apollo's extension; its clients also put ids there that a manifest has instead of hashes."""
    if extension is None:
        return None
    if not isinstance(extension, dict) or extension.get("version") != 1:
        raise BadUserInput("extensions.persistedQuery must be an object of version 1.", field="extensions")
    found = extension.get("sha256Hash")
    if not isinstance(found, str) or not 0 < len(found) <= LONGEST_ID:
        message = f"extensions.persistedQuery.sha256Hash must be a string of 1 to {LONGEST_ID} characters."
        raise BadUserInput(message, field="extensions")
    return found.lower() if is_hash(found.lower()) else found


def _field(named: DocumentReference) -> str:
    return "extensions.persistedQuery.sha256Hash" if named.automatic else "documentId"
