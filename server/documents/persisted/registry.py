"""The document registry: it finds the text of a request by id, by hash or as sent, and checks that it may run."""

import logging
from typing import Any, NamedTuple

from datastore.errors import BadUserInput, DomainError, ErrorCode, Forbidden, NotFound
from datastore.model.identity import Role
from datastore.model.log_redaction import redact_emails
from datastore.primitives.lru_cache import LruCache
from server.admission.budgets import OverBudget
from server.admission.callers import Caller
from server.documents.document_cache import Document, DocumentText
from server.documents.persisted.automatic import AutomaticDocuments
from server.documents.persisted.manifest import MAX_ID_CHARACTERS, is_hash, plain_id, sha256_of
from server.documents.persisted.trusted import ManifestSource
from server.documents.request import GraphQLParams
from server.documents.settings import DocumentsMode

MAX_LOGGED_HASHES = 10_000

_log = logging.getLogger(__name__)


class PersistedQueryNotFound(DomainError):
    """The hash is unknown. Clients of Apollo's protocol expect this message and code, and then send the text."""

    code = ErrorCode.PERSISTED_QUERY_NOT_FOUND

    def __init__(self) -> None:
        super().__init__("PersistedQueryNotFound")


class PersistedQueryNotSupported(DomainError):
    """Hashes are not supported. Clients of Apollo's protocol then send texts only."""

    code = ErrorCode.PERSISTED_QUERY_NOT_SUPPORTED

    def __init__(self) -> None:
        super().__init__("PersistedQueryNotSupported")


class DocumentReference(NamedTuple):
    """The id of a document in a request. `automatic`: the id came in the extension of Apollo's protocol."""

    document_id: str
    automatic: bool


class DocumentRegistry:
    """A registry of trusted documents from a `source`, and of automatic persisted queries.

    `admin_bypass`: whether admins may run any document in the mode ENFORCE. GraphiQL needs this.
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
        # Whether texts that clients send are looked up in the source.
        self._checks_texts = self._source is not None and mode is not DocumentsMode.PREFER
        self._logged = LruCache[str, bool](MAX_LOGGED_HASHES)
        #: The number of operations with an unregistered document, counted in the mode LOG.
        self.unregistered = 0

    def plain_text(self, params: GraphQLParams) -> DocumentText | None:
        """Return the text of a request without an id if it needs no check, which is the usual case, otherwise None."""
        if self._checks_texts or params.query is None or params.document_id is not None:
            return None
        if params.extensions and "persistedQuery" in params.extensions:
            return None
        return DocumentText(params.query)

    async def resolve(self, params: GraphQLParams, caller: Caller) -> DocumentText:
        """Return the text to execute.

        Raises:
            BadUserInput: the id is invalid, or belongs to another text than that of the request.
            NotFound: the id is unknown.
            PersistedQueryNotFound: the hash is unknown.
            PersistedQueryNotSupported: automatic persisted queries are disabled.
            Forbidden: the text is not registered, and the mode is ENFORCE.
        """
        reference = _reference_of(params)
        if params.query is not None:
            await self._check(reference, params.query, caller)
            return DocumentText(params.query, await self._check_registered(params.query, params.name, caller))
        if reference is None:
            raise BadUserInput("Send a query, or the documentId of a registered document.")
        trusted = await self._trusted(reference.document_id, caller)
        if trusted is not None:
            return DocumentText(trusted, trusted=True)
        return DocumentText(await self._automatic_text(reference, params, caller))

    async def on_valid(self, params: GraphQLParams, document: Document) -> None:
        """Register the text of a valid document if the client sent it with its hash."""
        if self._automatic is None or params.query is None:
            return
        reference = _reference_of(params)
        if reference is not None and reference.automatic and is_hash(reference.document_id):
            await self._automatic.add(reference.document_id, document.text)

    async def _trusted(self, document_id: str, caller: Caller) -> str | None:
        return None if self._source is None else await self._source.text(document_id, caller)

    async def _automatic_text(self, reference: DocumentReference, params: GraphQLParams, caller: Caller) -> str:
        if not reference.automatic or self._mode is DocumentsMode.ENFORCE:
            raise NotFound("No document has this id.", field=_field(reference))
        if self._automatic is None:
            raise PersistedQueryNotSupported
        text = await self._automatic.text(reference.document_id)
        if text is None:
            raise PersistedQueryNotFound
        await self._check_registered(text, params.name, caller)
        return text

    async def _check(self, reference: DocumentReference | None, text: str, caller: Caller) -> None:
        """Raise `BadUserInput` if the id that came with a text belongs to another one. An unknown name is ignored."""
        if reference is None:
            return
        if is_hash(reference.document_id):
            belongs = sha256_of(text) == reference.document_id
        else:
            registered = await self._trusted(reference.document_id, caller)
            belongs = registered == text or (registered is None and not reference.automatic)
        if not belongs:
            raise BadUserInput(
                f"{_field(reference)} does not belong to the query that came with it.", field=_field(reference)
            )

    async def _check_registered(self, text: str, name: str | None, caller: Caller) -> bool:
        """Return whether the text is trusted. Raises `Forbidden` in the mode ENFORCE for an unregistered text."""
        if self._source is None or not self._checks_texts:
            return False
        if self._mode is DocumentsMode.LOG:
            await self._log_unregistered(text, name, caller)
            return False
        if self._bypasses(caller):
            return False
        if not await self._source.contains(text, caller):
            raise Forbidden("Only registered documents run here: send the documentId of one, or its exact text.")
        return True

    def _bypasses(self, caller: Caller) -> bool:
        return self._admin_bypass and caller.identity is not None and caller.identity.role is Role.ADMIN

    async def _log_unregistered(self, text: str, name: str | None, caller: Caller) -> None:
        """Count an operation with an unregistered document, and log each text once. Never fails."""
        assert self._source is not None
        try:
            if await self._source.contains(text, caller):
                return
        except OverBudget:  # the operation itself will be refused for the same reason
            return
        except DomainError as problem:
            _log.warning("A document may be unregistered: its lookup failed: %s", problem)
            return
        self.unregistered += 1
        document_hash = sha256_of(text)
        if document_hash not in self._logged:
            self._logged.put(document_hash, True)
            shown = "-" if name is None else redact_emails(name)[:MAX_ID_CHARACTERS]
            _log.warning("An unregistered document was executed: sha256 %s, operation %r", document_hash, shown)


def names_document(params: GraphQLParams) -> bool:
    """Return whether a request names its document by an id, without a text."""
    return params.query is None and _reference_of(params) is not None


def names_hash(params: GraphQLParams) -> bool:
    """Return whether the id of a request is a SHA-256. It then always names the same text."""
    reference = _reference_of(params)
    return reference is not None and is_hash(reference.document_id)


def _reference_of(params: GraphQLParams) -> DocumentReference | None:
    by_hash = _persisted_query((params.extensions or {}).get("persistedQuery"))
    if params.document_id is None:
        return None if by_hash is None else DocumentReference(by_hash, True)
    if len(params.document_id) > MAX_ID_CHARACTERS:
        raise BadUserInput(f"documentId may have at most {MAX_ID_CHARACTERS} characters.", field="documentId")
    document_id = plain_id(params.document_id)
    if by_hash not in (None, document_id):
        raise BadUserInput("documentId and extensions.persistedQuery name two documents.", field="documentId")
    return DocumentReference(document_id, False)


def _persisted_query(extension: Any) -> str | None:
    """Return the hash in Apollo's extension, or the id of a manifest, which Apollo's clients send there as well."""
    if extension is None:
        return None
    if not isinstance(extension, dict) or extension.get("version") != 1:
        raise BadUserInput("extensions.persistedQuery must be an object of version 1.", field="extensions")
    document_id = extension.get("sha256Hash")
    if not isinstance(document_id, str) or not 0 < len(document_id) <= MAX_ID_CHARACTERS:
        message = f"extensions.persistedQuery.sha256Hash must be a string of 1 to {MAX_ID_CHARACTERS} characters."
        raise BadUserInput(message, field="extensions")
    return document_id.lower() if is_hash(document_id.lower()) else document_id


def _field(reference: DocumentReference) -> str:
    return "extensions.persistedQuery.sha256Hash" if reference.automatic else "documentId"
