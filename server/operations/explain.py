"""Explain: what an operation did to DynamoDB, told in its answer to those who may know."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from graphql.execution import Executor
from graphql.language import FieldNode, OperationType
from graphql.pyutils import AwaitableOrValue, Path

from datastore.errors import Forbidden, Unauthenticated
from datastore.explain.report import explanation_of
from datastore.explain.trace import current_field
from datastore.model.identity import Role
from datastore.model.log_redaction import hiding_emails
from datastore.session.metering import Meter
from server.admission.callers import Caller
from server.documents.document_cache import PreparedOperation


class Explain(StrEnum):
    """Who may have operations explained. Admin stands for the system role too."""

    OFF = "off"
    ADMIN = "admin"
    USER = "user"
    ANYONE = "anyone"


@dataclass(frozen=True, slots=True)
class Explanations:
    """Explains operations to those who may know, on tables whose names begin with `prefix`."""

    to: Explain = Explain.ADMIN
    prefix: str = ""

    def check(self, caller: Caller) -> None:
        """Raises `Unauthenticated` or `Forbidden` for those who may not: nothing is executed for them."""
        role = caller.identity.role if caller.identity is not None else None
        if self.to is Explain.OFF:
            raise Forbidden("Operations are not explained here: ask without X-Explain (or `extensions.explain`).")
        if self.to is Explain.ANYONE or _is_privileged(role) or (role is not None and self.to is Explain.USER):
            return
        if role is None:
            raise Unauthenticated("Sign in to have operations explained, or ask without X-Explain.")
        raise Forbidden("Operations are explained to the roles admin and system only: ask without X-Explain.")

    def of(self, operation: PreparedOperation, caller: Caller, estimate: float, meter: Meter) -> dict[str, Any]:
        """What the meter has, as `extensions.dynamodb`. Emails in keys are shown to admins and systems only."""
        privileged = caller.identity is not None and _is_privileged(caller.identity.role)
        return explanation_of(
            meter,
            prefix=self.prefix,
            estimate=estimate,
            source=_source(operation),
            hide=str if privileged else hiding_emails,
        )


class Asking(Executor[Any]):
    """Lets the store know which field asks, and costs something for each: for operations to be explained only."""

    def execute_field(
        self, parent_type: Any, source: Any, field_details_list: Any, path: Path, position_context: Any
    ) -> AwaitableOrValue[Any]:
        name = ".".join(key for key in path.as_list() if isinstance(key, str))
        token = current_field.set(name)
        try:
            value = super().execute_field(parent_type, source, field_details_list, path, position_context)
        finally:
            current_field.reset(token)
        return _as(name, value) if self.is_awaitable(value) else value


async def _as(name: str, value: Any) -> Any:
    before = current_field.get()
    current_field.set(name)
    try:
        return await value
    finally:
        # Not by a token: what nobody awaits to its end is closed in whatever context.
        current_field.set(before)


def _is_privileged(role: Role | None) -> bool:
    return role in (Role.ADMIN, Role.SYSTEM)


def _source(operation: PreparedOperation) -> str | None:
    """The field whose events a subscription gets: what is read outside of all fields is read for it."""
    if operation.kind is not OperationType.SUBSCRIPTION:
        return None
    fields = (part for part in operation.node.selection_set.selections if isinstance(part, FieldNode))
    first = next(fields, None)
    return None if first is None else (first.alias or first.name).value
