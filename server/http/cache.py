"""Responses that browsers and proxies may store: those to a GET that names a registered document by its id.

https://www.rfc-editor.org/rfc/rfc9111 (caching) · https://www.rfc-editor.org/rfc/rfc9110#section-13 (ETag)
"""

import hashlib
import re
from collections.abc import Mapping

from graphql import GraphQLSchema
from msgspec.structs import replace

from server.documents.cache_control import CacheControl
from server.documents.persisted.registry import names_document, names_hash
from server.http.headers import MAX_CONDITION_CHARACTERS
from server.http.responses import Reply
from server.operations.outcome import Outcome
from server.operations.request import Request

# The request headers on which a response depends. The CORS middleware adds `Origin`.
VARY = b"accept, authorization, x-explain"
# A name that is no hash may refer to another document after a release, or after it was forgotten: the age is limited.
NAMED_SECONDS = 60
_TAG = re.compile(r'(?:W/)?("[\x21\x23-\x7e\x80-\xff]*")')


class Caching:
    """The cache headers of responses, by the ages that the fields of the schema declare."""

    def __init__(self, schema: GraphQLSchema) -> None:
        self._ages = CacheControl(schema)

    def apply(self, answer: Reply, request: Request, outcome: Outcome, headers: Mapping[str, str]) -> Reply:
        """Return the response to a GET with its cache headers, or 304 if the client has a copy.

        `headers` are those of the request. A response that must not be stored is returned as it is (`no-store`): one
        with errors or an explanation, of an operation that was sent as text, with null in a root field (the object may
        be created at any moment), or of an operation with a field that declares no age.
        """
        age = self._ages.max_age(request.operation) if _is_cacheable(answer, request, outcome) else 0
        if not names_hash(request.params):
            age = min(age, NAMED_SECONDS)
        if not age:
            return answer
        cache_headers = (
            *answer.headers,
            (b"cache-control", f"{_scope(headers)}, max-age={age}".encode()),
            (b"etag", tag := _tag(answer)),
            (b"vary", VARY),
        )
        # Without the budget headers: a cache would send them to other callers.
        cacheable = replace(answer, headers=cache_headers, allowance=None)
        if _matches(headers.get("if-none-match"), tag.decode()):
            return replace(cacheable, status=304, body=b"")
        return cacheable


def _is_cacheable(answer: Reply, request: Request, outcome: Outcome) -> bool:
    return (
        answer.status == 200
        and names_document(request.params)
        and not (outcome.errors or outcome.extensions or request.params.explain)
        and outcome.replayed is None
        and bool(outcome.data)
        and None not in (outcome.data or {}).values()
    )


def _scope(headers: Mapping[str, str]) -> str:
    """Return the scope: the response to a request with a token is for its caller only."""
    return "private" if headers.get("authorization") else "public"


def _tag(answer: Reply) -> bytes:
    """Return a strong entity tag: it is equal only for equal bytes of the same media type."""
    representation = answer.content_type.encode() + b"\0" + answer.body
    return f'"{hashlib.sha256(representation).hexdigest()[:32]}"'.encode()


def _matches(condition: str | None, tag: str) -> bool:
    """Return whether If-None-Match names the tag. It compares weak and strong tags alike."""
    if condition is None or len(condition) > MAX_CONDITION_CHARACTERS:
        return False
    return condition.strip() == "*" or tag in _TAG.findall(condition)
