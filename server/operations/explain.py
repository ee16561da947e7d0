"""Explain: a report of an operation's calls to DynamoDB in its response, for callers with the permission."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from graphql.execution import Executor
from graphql.language import FieldNode, OperationType
from graphql.pyutils import AwaitableOrValue, Path

from datastore.errors import Forbidden, Unauthenticated
from datastore.explain.report import explanation_of
from datastore.model.identity import Role
from datastore.model.log_redaction import hide_emails
from datastore.session.metering import Meter
from datastore.session.read_trace import current_field
from server.admission.callers import Caller
from server.documents.document_cache import PreparedOperation


class Explain(StrEnum):
    """The callers that may have operations explained. `ADMIN` includes the system role."""

    OFF = "off"
    ADMIN = "admin"
    USER = "user"
    ANYONE = "anyone"


@dataclass(frozen=True, slots=True)
class Explanations:
    """Reports of operations, for the callers in `audience`, on tables whose names begin with `prefix`."""

    audience: Explain = Explain.ADMIN
    prefix: str = ""

    def check(self, caller: Caller) -> None:
        """Raise `Unauthenticated` or `Forbidden` for a caller without the permission, before anything is executed."""
        role = caller.identity.role if caller.identity is not None else None
        if self.audience is Explain.OFF:
            raise Forbidden("Operations are not explained here: omit X-Explain and `extensions.explain`.")
        if (
            self.audience is Explain.ANYONE
            or _is_privileged(role)
            or (role is not None and self.audience is Explain.USER)
        ):
            return
        if role is None:
            raise Unauthenticated("Sign in to have operations explained, or omit X-Explain.")
        raise Forbidden("Operations are explained to the roles admin and system only: omit X-Explain.")

    def report(self, operation: PreparedOperation, caller: Caller, estimate: float, meter: Meter) -> dict[str, Any]:
        """Return the calls of a meter, as `extensions.dynamodb`. Emails in keys are shown to privileged roles only."""
        privileged = caller.identity is not None and _is_privileged(caller.identity.role)
        return explanation_of(
            meter,
            prefix=self.prefix,
            estimate=estimate,
            source=_source(operation),
            redact=str if privileged else hide_emails,
        )


class FieldTracingExecutor(Executor[Any]):
    """An executor that records which field issues a read. The recording makes each field slower."""

    def execute_field(
        self, parent_type: Any, source: Any, field_details_list: Any, path: Path, position_context: Any
    ) -> AwaitableOrValue[Any]:
        name = ".".join(key for key in path.as_list() if isinstance(key, str))
        token = current_field.set(name)
        try:
            value = super().execute_field(parent_type, source, field_details_list, path, position_context)
        finally:
            current_field.reset(token)
        return _traced(name, value) if self.is_awaitable(value) else value


async def _traced(name: str, value: Any) -> Any:
    before = current_field.get()
    current_field.set(name)
    try:
        return await value
    finally:
        # `reset` with a token would fail: an abandoned coroutine may be closed in another context.
        current_field.set(before)


def _is_privileged(role: Role | None) -> bool:
    return role in (Role.ADMIN, Role.SYSTEM)


def _source(operation: PreparedOperation) -> str | None:
    """Return the response key of a subscription's field. Reads outside of all fields are attributed to it."""
    if operation.kind is not OperationType.SUBSCRIPTION:
        return None
    fields = (part for part in operation.node.selection_set.selections if isinstance(part, FieldNode))
    first = next(fields, None)
    return None if first is None else (first.alias or first.name).value
