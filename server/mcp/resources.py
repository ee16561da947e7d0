"""Resources: texts that describe the API to clients of the Model Context Protocol."""

from collections.abc import Callable, Mapping
from functools import cached_property

from msgspec import Struct

from datastore.model.identity import Role
from server.admission.callers import Caller


class ReadableText(Struct, frozen=True):
    """A text that clients may read."""

    uri: str
    name: str
    description: str
    media_type: str
    read: Callable[[], str]


class Resources:
    """The schema and the access patterns.

    They are for callers who may introspect the schema: admins, or everyone if `is_public`. `schema` and
    `access_patterns` return the texts, which are kept. The first call takes a moment.
    """

    def __init__(self, schema: Callable[[], str], access_patterns: Callable[[], str], *, is_public: bool) -> None:
        self._read_schema = schema
        self._read_access_patterns = access_patterns
        self._is_public = is_public
        resources = (
            ReadableText(
                "gateway://schema.graphql",
                "schema",
                "The schema of the API in GraphQL's schema language, with all descriptions.",
                "application/graphql",
                lambda: self._schema,
            ),
            ReadableText(
                "gateway://access-patterns.md",
                "access-patterns",
                "The access patterns: by field, its calls to DynamoDB and its callers.",
                "text/markdown",
                lambda: self._access_patterns,
            ),
        )
        self._all = {resource.uri: resource for resource in resources}

    @cached_property
    def _schema(self) -> str:
        return self._read_schema()

    @cached_property
    def _access_patterns(self) -> str:
        return self._read_access_patterns()

    def readable_by(self, caller: Caller) -> Mapping[str, ReadableText]:
        """Return the resources that a caller may read, by URI."""
        if self._is_public or (caller.identity is not None and caller.identity.role is Role.ADMIN):
            return self._all
        return {}
