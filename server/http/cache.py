"""Answers that browsers and proxies may keep: of a GET that names a known document by its id.

https://www.rfc-editor.org/rfc/rfc9111 (what may be kept) · https://www.rfc-editor.org/rfc/rfc9110#section-13 (ETag)
"""

import hashlib
import re
from collections.abc import Mapping

from graphql import GraphQLSchema

from server.documents.cache_control import CacheControl
from server.documents.persisted.registry import names_document, names_hash
from server.http.headers import MOST_CONDITION_CHARACTERS
from server.http.responses import Reply
from server.operations.outcome import Outcome
from server.operations.request import Request

# What an answer depends on besides its URL; who is at its other end (CORS) says more.
VARY = b"accept, authorization, x-explain"
# A name may stand for another text after a release, or once it was forgotten: its answers are not kept beyond that.
NAMED_SECONDS = 60
_TAG = re.compile(r'(?:W/)?("[\x21\x23-\x7e\x80-\xff]*")')


class Caching:
    """Tells of answers whether they may be kept, as the fields of this schema declare it."""

    def __init__(self, schema: GraphQLSchema) -> None:
        self._ages = CacheControl(schema)

    def told(self, answer: Reply, request: Request, outcome: Outcome, headers: Mapping[str, str]) -> Reply:
        """The answer of a GET with what caches need to know, or 304 for one that the client has already.

        `headers` are the request's. What may not be kept is left as it is, and says so (`no-store`): answers with
        errors, with an explanation, of operations sent as texts, with nothing where a root field was asked for (it may
        come any moment), and of operations one of whose fields declares no age.
        """
        age = self._ages.max_age(request.operation) if _is_whole(answer, request, outcome) else 0
        if not names_hash(request.params):
            age = min(age, NAMED_SECONDS)
        if not age:
            return answer
        kept = (
            *answer.headers,
            (b"cache-control", f"{_scope(headers)}, max-age={age}".encode()),
            (b"etag", tag := _tag(answer)),
            (b"vary", VARY),
        )
        # What is left of one caller's budget would be a lie to whoever gets the answer from a cache.
        kept_answer = answer._replace(headers=kept, allowance=None)
        if _has(headers.get("if-none-match"), tag.decode()):
            return kept_answer._replace(status=304, body=b"")
        return kept_answer


def _is_whole(answer: Reply, request: Request, outcome: Outcome) -> bool:
    return (
        answer.status == 200
        and names_document(request.params)
        and not (outcome.errors or outcome.extensions or request.params.explain)
        and outcome.replayed is None
        and bool(outcome.data)
        and None not in (outcome.data or {}).values()
    )


def _scope(headers: Mapping[str, str]) -> str:
    """With a token the answer may be another one, and is for its bearer alone."""
    return "private" if headers.get("authorization") else "public"


def _tag(answer: Reply) -> bytes:
    """A strong one: equal for equal bytes of one media type only."""
    representation = answer.content_type.encode() + b"\0" + answer.body
    return f'"{hashlib.sha256(representation).hexdigest()[:32]}"'.encode()


def _has(condition: str | None, tag: str) -> bool:
    """Whether If-None-Match names the tag. Weak and strong ones count alike there."""
    if condition is None or len(condition) > MOST_CONDITION_CHARACTERS:
        return False
    return condition.strip() == "*" or tag in _TAG.findall(condition)
