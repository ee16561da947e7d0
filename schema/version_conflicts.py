"""The present item in the error of a rejected update, with the fields that need no further read."""

from inspect import isawaitable
from typing import Any

from graphql import (
    GraphQLField,
    GraphQLInterfaceType,
    GraphQLLeafType,
    GraphQLList,
    GraphQLNonNull,
    GraphQLObjectType,
    GraphQLOutputType,
    GraphQLResolveInfo,
    get_named_type,
)
from strawberry.extensions.field_extension import AsyncExtensionResolver, FieldExtension
from strawberry.types import Info

from datastore.session.optimistic_locking import Outdated


class ConflictVersions(FieldExtension):
    """An extension that adds the present item to the error `Outdated`, in the form in which this caller may see it."""

    async def resolve_async(self, next_: AsyncExtensionResolver, source: Any, info: Info, **kwargs: Any) -> Any:
        try:
            return await next_(source, info, **kwargs)
        except Outdated as outdated:
            raw = info._raw_info
            outdated.extensions["current"] = await _serialize(outdated.current, raw.return_type, raw)
            raise


async def _serialize(value: Any, kind: GraphQLOutputType, info: GraphQLResolveInfo[Any]) -> Any:
    """Return a value as a response contains it."""
    if isinstance(kind, GraphQLNonNull):
        return await _serialize(value, kind.of_type, info)
    if value is None:
        return None
    if isinstance(kind, GraphQLList):
        return [await _serialize(entry, kind.of_type, info) for entry in value]
    if isinstance(kind, GraphQLObjectType):
        fields = {name: field for name, field in kind.fields.items() if _needs_no_read(field)}
        return {name: await _field(value, field, info) for name, field in fields.items()}
    assert isinstance(kind, GraphQLLeafType), "Unions and interfaces need further reads."
    return kind.serialize(value)


async def _field(source: Any, field: GraphQLField, info: GraphQLResolveInfo[Any]) -> Any:
    """Return the value of a field from its resolver, which hides the values that the caller may not see."""
    assert field.resolve is not None, "Strawberry gives each field a resolver."
    value = field.resolve(source, info)
    return await _serialize(await value if isawaitable(value) else value, field.type, info)


def _needs_no_read(field: GraphQLField) -> bool:
    """Return whether a field has no arguments and needs no read. A field that reads names patterns in its metadata.

    The present item has the values of preloaded fields: only lists may lack them.
    """
    named = get_named_type(field.type)
    definition = field.extensions.get("strawberry-definition")
    metadata = {} if definition is None else definition.metadata
    reads = bool(metadata.get("patterns")) and "preloaded" not in metadata
    return not (field.args or reads or isinstance(named, GraphQLInterfaceType))
